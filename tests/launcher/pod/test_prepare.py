"""Inputs of a pod as a plain process: code, volumes, data, a home, what it resumes from."""

from __future__ import annotations

import functools
import http.server
import io
import json
import os
import shutil
import sys
import tarfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.launcher.pods import Pods, checkpoint, digest, pack

Make = Callable[..., Pods]


def test_large_files_in_parts_links_and_the_same_content_twice(make_pods: Make) -> None:
    big = bytes(range(256)) * 10000
    same = b"print(open('big', 'rb').read() == bytes(range(256)) * 10000, open('dir/link').read()[:5])\n"
    entries = [
        ["big", "file", digest(big), False, ""],
        ["train.py", "file", digest(same), False, ""],
        ["dir/copy", "file", digest(same), True, ""],
        ["dir/link", "link", "", False, "../train.py"],
        ["empty", "file", digest(b""), False, ""],
    ]
    half = len(big) // 2
    packs = [
        pack({digest(same): same, digest(b"other"): b"other", digest(b""): b""}),
        pack({digest(big) + ".0": big[:half]}),
        pack({digest(big) + ".1": big[half:], digest(same): same}),
    ]
    pods = make_pods(code={"entries": entries, "packs": 3})
    pods.start(0, packs=packs)
    assert pods.wait() == 0, pods.stderr()
    assert pods.log(0, "0.out") == "True print\n"
    work = pods.node(0) / "work"
    assert (work / "dir/copy").read_bytes() == same and os.access(work / "dir/copy", os.X_OK)
    assert (work / "empty").read_bytes() == b""


def broken_codes() -> Iterator[tuple[str, list[list[Any]], bytes, str]]:
    good = b"print('never')\n"
    entry = ["train.py", "file", digest(good), False, ""]
    members = {digest(good): good}
    yield "other content", [entry], pack({digest(good): good + b"#"}), "damaged"
    yield "no content", [entry], pack({}), "damaged"
    yield "cut", [entry], pack(members)[:60], "ends too early"
    yield "no pack", [entry], b"hello", "damaged"
    yield "no tar", [entry], __import__("gzip").compress(b"x" * 2000), "not a pack"
    for path in ("../out.py", "/abs.py", "a/../../out", "", "./x", "a//b"):
        yield f"path {path}", [entry, [path, *entry[1:]]], pack(members), "inside the tree"
    for target in ("../../etc/passwd", "/etc/passwd"):
        yield f"link {target}", [entry, ["a/link", "link", "", False, target]], pack(members), "leaves the tree"
    yield "through a link", [["d", "link", "", False, "x"], ["d/f", *entry[1:]]], pack(members), "no folder"
    yield "twice", [entry, entry], pack(members), "twice"
    yield "odd kind", [["x", "device", "", False, ""]], pack(members), "kind"


BROKEN = list(broken_codes())


@pytest.mark.parametrize(("name", "entries", "data", "words"), BROKEN, ids=[name for name, *_ in BROKEN])
def test_code_that_is_not_trusted(make_pods: Make, name: str, entries: list[Any], data: bytes, words: str) -> None:
    pods = make_pods(code={"entries": entries, "packs": 1})
    pods.start(0, packs=[data])
    assert pods.wait() == 209
    message = pods.message()
    assert (message["cause"], message["exit_code"]) == ("setup", 209) and words in message["message"]
    assert (pods.verdict["cause"], pods.verdict["exit_code"]) == ("setup", 209)
    assert pods.log(0, "0.out") == ""
    assert sorted(path.name for path in pods.root(0).iterdir()) == [
        "code", "gang", "node", "stderr", "stdout", "termination",
    ]  # fmt: skip


def test_without_code(make_pods: Make) -> None:
    pods = make_pods("ls | wc -l", code=None)
    pods.start(0, packs=[])
    assert pods.wait() == 0
    assert pods.log(0, "0.out").strip() == "0"


def test_volumes_appear_in_the_working_copy(make_pods: Make, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    (shared / "in").write_text("from outside")
    script = "print(open('a/inputs/in').read()); open('ckpt/x', 'w'); open('tmp/y', 'w')"
    pods = make_pods(script=script)
    pods.gang["links"] = {
        "a/inputs": str(shared),
        "ckpt": str(pods.folder / "checkpoints"),
        "tmp": str(pods.node(0) / "volumes" / "1"),
    }
    assert pods.run() == [0], pods.log(0, "0.err")
    assert pods.log(0, "0.out") == "from outside\n"
    assert (pods.folder / "checkpoints" / "x").exists() and (pods.node(0) / "volumes/1/y").exists()


@pytest.mark.parametrize(
    ("links", "words"),
    [
        ({"inputs": "/nowhere/to/be/found"}, "volumes.inputs: /nowhere/to/be/found does not exist"),
        ({"inputs": {"path": "/nowhere", "shown": "/srv/mine"}}, "volumes.inputs: /srv/mine does not exist"),
        ({"train.py": "/tmp"}, "train.py is part of the code"),
        ({"../x": "/tmp"}, "outside of the working copy"),
        ({".": "/tmp"}, "outside of the working copy"),
    ],
)
def test_volumes_that_cannot_be(make_pods: Make, links: dict[str, Any], words: str) -> None:
    pods = make_pods(script="print('never')", links=links)
    assert pods.run() == [209]
    assert words in pods.message()["message"] and words in pods.verdict["message"]
    assert (pods.verdict["cause"], pods.log(0, "0.out")) == ("setup", "")


class Web(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def web(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    folder = tmp_path / "web"
    folder.mkdir()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Web, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://user:pass-word@127.0.0.1:{server.server_port}", folder
    server.shutdown()
    server.server_close()


def archive(path: Path, names: dict[str, bytes]) -> bytes:
    with tarfile.open(path, "w:gz") as tar:
        for name, data in names.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return path.read_bytes()


def test_data_is_there_before_setup(make_pods: Make, web: tuple[str, Path], tmp_path: Path) -> None:
    url, folder = web
    packed = archive(folder / "set.tar.gz", {"numbers/one.txt": b"1 2\n"})
    (folder / "plain.bin").write_bytes(b"plain")
    volume = tmp_path / "volume"
    volume.mkdir()
    pods = make_pods(
        script="print(open('data/numbers/one.txt').read(), end='')",
        plan={"setup": "cat data/numbers/one.txt in/deep/plain.bin"},
        links={"in": str(volume)},
        data=[
            {"url": f"{url}/set.tar.gz", "to": "data", "sha256": digest(packed), "unpack": True},
            {"url": f"{url}/plain.bin?token=hidden", "to": "in/deep", "sha256": None, "unpack": True},
            {"url": f"{url}/plain.bin", "to": str(tmp_path / "absolute"), "sha256": None, "unpack": False},
        ],
    )
    assert pods.run() == [0], pods.message()
    assert pods.log(0, "0.out") == "1 2\n"
    assert pods.log(0, "setup.out").endswith("1 2\nplain")
    assert (volume / "deep" / "plain.bin").exists() and (tmp_path / "absolute" / "plain.bin").exists()
    told = pods.stdout() + pods.stderr() + json.dumps(pods.message())
    assert "imported http://127.0.0.1" in told and "pass-word" not in told and "hidden" not in told


def test_a_url_that_is_a_secret_comes_out_of_the_environment_and_no_rank_sees_it(
    make_pods: Make, web: tuple[str, Path], tmp_path: Path
) -> None:
    url, folder = web
    (folder / "plain.bin").write_bytes(b"plain")
    item = {"url": f"{url}/plain.bin", "to": "in", "sha256": None, "unpack": True, "variable": "LONGBOAT_DATA_URL_0"}
    script = "import os; print(open('in/plain.bin').read(), [v for v in os.environ.values() if 'hidden' in v])"
    pods = make_pods(script=script, data=[item])
    assert pods.run(env={"LONGBOAT_DATA_URL_0": f"{url}/plain.bin?sig=hidden"}) == [0], pods.message()
    assert pods.log(0, "0.out") == "plain []\n"
    told = pods.stdout() + pods.stderr() + json.dumps(pods.message())
    files = [path for path in pods.node(0).rglob("*") if path.is_file() and path.name != "train.py"]
    assert "hidden" not in told and not [path for path in files if b"sig=hidden" in path.read_bytes()]
    lacking = make_pods(script=script, data=[item])
    lacking.run()
    assert "should be the variable LONGBOAT_DATA_URL_0" in lacking.message()["message"]


@pytest.mark.parametrize("how", ["digest", "gone", "hostile", "s3"])
def test_data_that_cannot_be_had(make_pods: Make, web: tuple[str, Path], how: str) -> None:
    url, folder = web
    archive(folder / "set.tar.gz", {"../evil" if how == "hostile" else "ok": b"x"})
    item = {"url": f"{url}/set.tar.gz", "to": "data", "sha256": "0" * 64 if how == "digest" else None, "unpack": True}
    words = {"digest": "the sha256 is", "gone": "404", "hostile": "../evil", "s3": "an object has no query"}[how]
    if how == "gone":
        item["url"] = f"{url}/nothing.tar.gz"
    if how == "s3":
        item["url"] = "s3://bucket/key?secret"
    pods = make_pods(script="print('never')", data=[item], roles={"worker": 2})
    pods.run()
    # The other node may have been ended before it failed too.
    message = next(said for said in (pods.message(place) for place in range(2)) if said["cause"])
    assert (message["cause"], message["exit_code"]) == ("data", 209) and words in message["message"]
    assert (pods.verdict["cause"], pods.verdict["exit_code"]) == ("data", 209)
    assert words in pods.verdict["message"] and "pass-word" not in json.dumps(message)
    assert not (pods.node(0) / "data" / "evil").exists()


def test_a_home_that_can_be_written_and_a_python(make_pods: Make, tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("sh", "env", "touch", "basename", "dirname"):
        found = shutil.which(name)
        assert found
        (programs / name).symlink_to(found)
    (programs / "python3").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    (programs / "python3").chmod(0o755)
    script = "import os; print(os.environ['HOME']); open(os.environ['HOME'] + '/x', 'w')"
    for home in ("/", "", "/nowhere"):
        pods = make_pods("python train.py", script=script)
        assert pods.run(env={"HOME": home, "PATH": str(programs)}) == [0], pods.log(0, "0.err")
        assert pods.log(0, "0.out") == f"{pods.node(0)}/home\n"
    pods = make_pods("python train.py", script=script)
    assert pods.run(env={"HOME": str(tmp_path), "PATH": str(programs)}) == [0]
    assert pods.log(0, "0.out") == f"{tmp_path}\n"


RESUMES = "import os, longboat; print(longboat.resume_from(), os.environ['LONGBOAT_RESUME_FROM'])"


def test_all_nodes_resume_from_what_node_0_found(make_pods: Make) -> None:
    pods = make_pods(script=RESUMES, roles={"worker": 2}, plan={"attempt": 1})
    newest = checkpoint(pods.folder / "checkpoints", 12)
    checkpoint(pods.folder / "checkpoints", 3)
    (pods.folder / "checkpoints" / "step-20").mkdir()
    assert pods.run() == [0, 0]
    for place in range(2):
        assert pods.log(place, f"{place}.out") == f"{newest} {newest}\n"
        assert pods.message(place)["resumed_from"] == str(newest)


def test_no_training_starts_over_because_its_checkpoints_cannot_be_read(make_pods: Make) -> None:
    pods = make_pods(script=RESUMES, plan={"attempt": 1})
    (pods.folder / "checkpoints" / "step-20").mkdir(parents=True)
    (pods.folder / "checkpoints" / "step-20" / ".complete").symlink_to("/proc/self/mem")  # reading it is EIO
    assert pods.run() == [209]
    assert "the checkpoints cannot be read" in pods.message()["message"]


def test_a_folder_to_begin_with(make_pods: Make, tmp_path: Path) -> None:
    newest = checkpoint(tmp_path / "old", 7)
    for wanted in (tmp_path / "old", newest):
        pods = make_pods(script=RESUMES)
        pods.gang["checkpoints"]["resume"] = str(wanted)
        assert pods.run() == [0]
        assert pods.log(0, "0.out") == f"{newest} {newest}\n"
        own = checkpoint(pods.folder / "checkpoints", 1)
        pods.start(0)
        assert pods.wait() == 209  # the working copy is not empty: a pod starts once
        assert own.exists()
    pods = make_pods(script=RESUMES)
    pods.gang["checkpoints"]["resume"] = str(tmp_path / "nothing")
    assert pods.run() == [209]
    assert "no complete checkpoint to resume from" in pods.message()["message"]

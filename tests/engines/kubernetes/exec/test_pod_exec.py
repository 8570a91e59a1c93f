"""The program that runs inside pods, run here: any Python can run it, whatever a tree or a file looks like."""

from __future__ import annotations

import ast
import io
import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

from longboat.bundles.extraction import extract
from longboat.core.errors import EngineError, UsageError
from longboat.engines.kubernetes.exec import pod_program
from longboat.engines.kubernetes.exec.pod_exec import FramedOutput, check_path, command_of, piped, settle
from longboat.storage.checkpoints import OWN_FILE, OWN_FOLDER


def run(
    *words: object, stdin: bytes = b"", code: int = 0, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[bytes]:
    verb, *arguments = (str(word) for word in words)
    command = [sys.executable, *command_of(verb, *arguments)[1:]]
    done = subprocess.run(command, input=stdin, capture_output=True, check=False, env=environment)
    assert done.returncode == code, done.stderr.decode()
    return done


def framed(data: bytes, size: int = 1 << 15) -> bytes:
    """As it is sent."""
    stream = FramedOutput(io.BytesIO(data))
    return b"".join(iter(lambda: stream.read(size), b""))


def test_it_is_python_3_8_and_stays_short() -> None:
    ast.parse(Path(pod_program.__file__).read_text(), feature_version=(3, 8))
    assert len(" ".join(command_of("cat", "/x", "0"))) < 7000


def test_a_file_from_a_byte_on(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(range(256)))
    assert run("cat", tmp_path / "file", 250).stdout == bytes(range(250, 256))
    assert run("cat", tmp_path / "file", 999).stdout == b""
    gone = run("cat", tmp_path / "nothing", 0, code=pod_program.MISSING)
    assert b"nothing" in gone.stderr and gone.stderr.count(b"\n") == 1
    run("cat", tmp_path, 0, code=pod_program.TROUBLE)
    assert json.loads(run("names", tmp_path).stdout) == ["file"]
    run("names", tmp_path / "file", code=pod_program.MISSING)


def make_tree(root: Path) -> Path:
    (root / "sub" / "empty").mkdir(parents=True)
    (root / "bin").mkdir()
    (root / "bin" / "go").write_text("#!/bin/sh\n")
    (root / "bin" / "go").chmod(0o755)
    (root / "sub" / "data").write_bytes(os.urandom(100_000))
    (root / "sub" / "näme with blanks").write_text("x")
    (root / "sub" / "link").symlink_to("../bin/go")
    (root / "dangling").symlink_to("nowhere")
    os.link(root / "sub" / "data", root / "again")
    return root


def contents(root: Path) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        if path.is_symlink():
            found[name] = ("link", os.readlink(path))
        elif path.is_dir():
            found[name] = "folder"
        else:
            found[name] = (path.read_bytes(), bool(path.stat().st_mode & 0o100))
    return found


def test_a_tree_there_and_back(tmp_path: Path) -> None:
    tree = make_tree(tmp_path / "tree")
    os.mkfifo(tree / "pipe")
    packed = io.BytesIO()
    pod_program.pack_to(str(tree), "tree", packed)
    (tree / "pipe").unlink()
    run("unpack", tmp_path / "deep" / "there", "tree", stdin=framed(packed.getvalue()))
    assert contents(tmp_path / "deep" / "there") == contents(tree)

    archive = tmp_path / "archive"
    archive.write_bytes(run("pack", tmp_path / "deep" / "there").stdout)
    extract(archive, tmp_path / "back")
    assert contents(tmp_path / "back" / "there") == contents(tree)


def test_only_what_is_named_is_removed(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints"
    for name in ("step-1", ".step-2.a0.worker-0.ab.tmp", "thesis"):
        (folder / name / "deep").mkdir(parents=True)
    (folder / ".attempt-1").touch()
    rest = run("remove_named", folder, OWN_FOLDER, OWN_FILE).stdout
    assert json.loads(rest) == os.listdir(folder) == ["thesis"]
    (folder / "thesis" / "deep").rmdir()
    (folder / "thesis").rmdir()
    for _ in range(2):  # asked again, it is fine that it is gone
        assert run("remove_named", folder, OWN_FOLDER, OWN_FILE).stdout == b"[]"
        assert not folder.exists()


def test_into_a_folder_that_exists(tmp_path: Path) -> None:
    tree = make_tree(tmp_path / "tree")
    packed = io.BytesIO()
    pod_program.pack_to(str(tree), "tree", packed)
    (tmp_path / "there" / "tree" / "bin").mkdir(parents=True)
    (tmp_path / "there" / "tree" / "bin" / "go").write_text("old")
    (tmp_path / "there" / "tree" / "bin" / "stays").write_text("stays")
    run("unpack", tmp_path / "there", "tree", stdin=framed(packed.getvalue()))
    found = contents(tmp_path / "there" / "tree")
    assert found.pop("bin/stays") == (b"stays", False)
    assert found == contents(tree)
    single = io.BytesIO()
    pod_program.pack_to(str(tree / "bin" / "go"), "go", single)
    run("unpack", tmp_path / "there" / "renamed", "go", stdin=framed(single.getvalue()))
    assert (tmp_path / "there" / "renamed").read_text() == "#!/bin/sh\n"


def hostile(*members: tuple[str, bytes | str]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, what in members:
            member = tarfile.TarInfo(name)
            if isinstance(what, str):
                member.type, member.linkname = tarfile.SYMTYPE, what
                tar.addfile(member)
            else:
                member.size = len(what)
                tar.addfile(member, io.BytesIO(what))
    return out.getvalue()


@pytest.mark.parametrize(
    "archive",
    [
        hostile(("tree/../../out", b"x")),
        hostile(("/etc/out", b"x")),
        hostile(("tree/link", "../.."), ("tree/link/out", b"x")),
        hostile(("tree/a", "/tmp"), ("tree/a/b/out", b"x")),
        hostile(("tree/x", b"x"))[:700],
        b"no tar at all",
    ],
)
def test_a_hostile_tree_is_refused(tmp_path: Path, archive: bytes) -> None:
    (tmp_path / "inner").mkdir()
    run("unpack", tmp_path / "inner" / "there", "tree", stdin=framed(archive), code=pod_program.TROUBLE)
    assert list(tmp_path.rglob("out")) == []


def test_a_file_that_grows_or_shrinks_while_it_is_read() -> None:
    short = pod_program.ExactReader(io.BytesIO(b"abc"), 5)
    assert short.read(4) + short.read(4) == b"abc\0\0"
    long = pod_program.ExactReader(io.BytesIO(b"abcdefgh"), 5)
    assert long.read(4) + long.read(4) + long.read() == b"abcde"


def test_one_file_all_or_nothing(tmp_path: Path) -> None:
    run("put", tmp_path / "a" / "b", stdin=framed(b"content"))
    assert (tmp_path / "a" / "b").read_bytes() == b"content"
    (tmp_path / "folder").mkdir()
    run("put", tmp_path / "folder", stdin=framed(b"content"), code=pod_program.TROUBLE)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "folder"]


@pytest.mark.parametrize("sent", [0, 3, 9, 11, 15])
def test_of_input_that_broke_off_nothing_is_left(tmp_path: Path, sent: int) -> None:
    """However it ended: a connection that breaks looks like one that was closed."""
    whole = framed(b"content", size=4)
    told = run("put", tmp_path / "file", stdin=whole[:sent], code=pod_program.TROUBLE)
    assert b"connection broke" in told.stderr and list(tmp_path.iterdir()) == []
    assert len(whole) > sent
    run("put", tmp_path / "file", stdin=whole + b"whatever comes after the end")
    assert (tmp_path / "file").read_bytes() == b"content"


def test_removal(tmp_path: Path) -> None:
    tree = make_tree(tmp_path / "tree")
    (tree / "sub").chmod(0o500)
    (tmp_path / "outside").mkdir()
    (tree / "bin" / "out").symlink_to(tmp_path / "outside")
    run("remove", tree)
    run("remove", tree)
    assert [path.name for path in tmp_path.iterdir()] == ["outside"]


def node(tmp_path: Path, pid: int | None = None) -> Path:
    folder = tmp_path / "node"
    (folder / "work").mkdir(parents=True)
    plan = {
        "workdir": str(folder / "work"),
        "env": {"LR": "0.1", "LONGBOAT_NODE": "worker-0"},
        "unset": ["RANK", "LONGBOAT_*"],
        "path_prepend": [str(folder / "bin")],
        "ranks": [{"rank": rank, "local_rank": rank, "env": {"RANK": str(rank)}} for rank in (4, 5)],
        "checkpoint_dir": "/c",
        "artifacts_dir": "/a",
    }
    (folder / "plan.json").write_text(json.dumps(plan))
    if pid is not None:
        (folder / "beat.json").write_text(json.dumps({"ranks": {"5": {"pid": pid}}}))
    return folder


SCRIPT = 'echo "$LR $RANK $LONGBOAT_NODE $LONGBOAT_STRAY $LONGBOAT_CHECKPOINT_DIR $FROM_RANK"; pwd'


def test_a_command_as_a_rank_would_be_run(tmp_path: Path) -> None:
    folder = node(tmp_path)
    environment = {"PATH": os.environ["PATH"], "RANK": "99", "LONGBOAT_STRAY": "stray"}
    for rank, expected in (("", "4"), ("5", "5")):
        done = run("beside", folder, rank, "sh", "-c", SCRIPT, environment=environment)
        assert done.stdout.decode().splitlines() == [f"0.1 {expected} worker-0  /c ", str(folder / "work")]
    run("beside", folder, "", "sh", "-c", "exit 7", code=7)
    missing = run("beside", folder, "", "no-such-program", code=127)
    assert missing.stderr == b"", "whoever asked looks for it and says so, once"
    (folder / "work" / "odd").write_text("#!/no/such/interpreter\n")
    (folder / "work" / "odd").chmod(0o755)
    assert b"No such file" in run("beside", folder, "", "./odd", code=127).stderr
    run("which", folder, "", "no-such-program", code=pod_program.MISSING)
    run("which", folder, "", "sh")
    run("beside", folder, "77", "true", code=pod_program.MISSING)
    (folder / "work" / "file").write_text("")
    run("beside", folder, "", "./file", code=126)


def test_a_pipe_that_nobody_reads_ends_the_command(tmp_path: Path) -> None:
    """Python ignores SIGPIPE; a command started by it should not."""
    folder = node(tmp_path)
    done = run("beside", folder, "", "sh", "-c", "(yes; echo $? >&2) | head -1")
    assert done.stderr.decode().split() == ["141"]


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="environments are read from /proc")
def test_a_command_has_the_environment_of_the_living_rank(tmp_path: Path) -> None:
    variables = {"PATH": os.environ["PATH"], "FROM_RANK": "a=b\nc", "RANK": "5"}
    with subprocess.Popen(["sleep", "60"], env=variables) as rank:
        try:
            done = run("beside", node(tmp_path, rank.pid), "5", "sh", "-c", 'printf %s "$FROM_RANK/$RANK/$LR"')
        finally:
            rank.kill()
    assert done.stdout == b"a=b\nc/5/"


def test_a_probe_of_this_disk(tmp_path: Path) -> None:
    found = json.loads(run("probe", tmp_path, 2 << 20, 20, 1000).stdout)
    assert (found["size"], found["files"], found["file_size"]) == (2 << 20, 20, 1000)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("path", ["relative", "/a/../b", "/a//b", "/a\nb", "", "/a/"])
def test_paths_that_are_not_sent(path: str) -> None:
    with pytest.raises(UsageError):
        check_path(path)


def test_what_was_copied_takes_its_place(tmp_path: Path) -> None:
    for name in ("file", "folder/inner", "target/stays", "other"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    settle(tmp_path / "folder", tmp_path / "target")
    assert sorted(path.name for path in (tmp_path / "target").iterdir()) == ["inner", "stays"]
    with pytest.raises(EngineError, match="is a folder"):
        settle(tmp_path / "file", tmp_path / "target")
    settle(tmp_path / "file", tmp_path / "other")
    assert (tmp_path / "other").read_text() == "file"


def test_what_goes_wrong_while_packing_is_told() -> None:
    def breaks(out: Any) -> None:
        out.write(b"x" * 100)
        raise PermissionError(13, "Permission denied", "secret")

    with pytest.raises(PermissionError), piped(breaks) as stream:
        while stream.read(1000):
            pass
    with pytest.raises(PermissionError), piped(breaks) as stream:
        raise EngineError("the other side saw only half of it")

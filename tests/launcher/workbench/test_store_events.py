"""Event files of a real object store: by name, the newest of each, and files that grow."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from longboat.launcher.workbench import store_events
from longboat.launcher.workbench.event_files import link
from longboat.launcher.workbench.store_events import StoreEvents, grow, is_fit, newest_by_path
from longboat.storage.stores.object_store import ObjectInfo
from longboat.storage.stores.registry import open_store
from longboat.storage.urls import object_url
from tests.storage.realstores import Running

SENT = "a0-0123456789abcdef-01234567"
NAME = "events.out.tfevents.1.host"


def info(key: str, changed: float = 0.0) -> ObjectInfo:
    return ObjectInfo(key, 1, key, changed)


def test_of_checkpoints_the_newest_copy_of_each_file() -> None:
    keys = [
        f"p/step-9/{SENT}/logs/{NAME}",
        f"p/step-10/{SENT}/logs/{NAME}",
        f"p/step-10/{SENT}/weights",
        f"p/eval/{NAME}",
    ]
    chosen = newest_by_path(map(info, keys), "p/")
    assert {path: each.key for path, each in chosen.items()} == {f"logs/{NAME}": keys[1], f"eval/{NAME}": keys[3]}
    again = newest_by_path([info(f"p/step-1/{NAME}", 1.0), info(f"p/step-1/{SENT}/{NAME}", 2.0)], "p/")
    assert again[NAME].changed == 2.0


def test_of_an_address_above_several_runs_too() -> None:
    """What `checkpoints.to` of a job file says is one."""
    keys = [f"p/cnn-0a1b2c3d/step-{step}/{SENT}/logs/{NAME}" for step in (9, 10)]
    keys += [f"p/other/step-3/{NAME}", f"p/cnn-0a1b2c3d/step-10/{SENT}/weights"]
    chosen = newest_by_path(map(info, keys), "p/")
    assert {path: each.key for path, each in chosen.items()} == {
        f"cnn-0a1b2c3d/logs/{NAME}": keys[1],
        f"other/step-3/{NAME}": keys[2],
    }


@pytest.mark.parametrize("path", ["../x", "a/../b", "a//b", "/a", "a/\0", "x" * 256, "", "a\ud800"])
def test_names_that_lead_elsewhere(path: str) -> None:
    assert not is_fit(path)
    assert newest_by_path([info(f"p/{path}/tfevents"), info("p/ok/tfevents")], "p/").keys() <= {
        "ok/tfevents",
        "x/tfevents",
    }


def test_a_file_that_grows_stays_the_same_file(tmp_path: Path) -> None:
    target, part = tmp_path / "target", tmp_path / "part"
    for content in (b"one", b"one two", b"other"):
        part.write_bytes(content)
        before = os.stat(target).st_ino if target.exists() else None
        grow(str(target), str(part))
        assert target.read_bytes() == content and not part.exists()
        assert (os.stat(target).st_ino == before) == (content == b"one two")


def test_a_file_that_grows_is_not_read_into_memory(tmp_path: Path) -> None:
    """Three times its size in a pod of little memory would end the board."""
    size = 256 << 20
    for name, more in (("target", 0), ("part", 1)):
        with open(tmp_path / name, "wb") as file:
            file.truncate(size + more)
    program = (
        "import resource, sys; from longboat.launcher.workbench.store_events import grow; "
        "most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10; "
        f"resource.setrlimit(resource.RLIMIT_DATA, (most + {size >> 2},) * 2); grow(*sys.argv[1:])"
    )
    words = [sys.executable, "-c", program, str(tmp_path / "target"), str(tmp_path / "part")]
    done = subprocess.run(words, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    assert os.path.getsize(tmp_path / "target") == size + 1


def test_one_file_that_cannot_be_brought_keeps_none_of_the_others(
    s3: Running, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    url = f"s3://data/boards/{uuid.uuid4().hex}"
    where = object_url(url + "/")
    store = open_store(where, s3.environment)
    for path in ("a/tfevents", "b/tfevents", "c/tfevents"):
        store.write(where.key + path, io.BytesIO(path.encode()), len(path))
    events = StoreEvents(url, str(tmp_path / "cnn"), s3.environment)
    copies = tmp_path / "cnn" / "checkpoints"
    copies.mkdir(parents=True)
    (copies / "a").touch()  # as of an object with this name, which is gone
    half = tmp_path / "cnn" / ("0" * 32)
    half.touch()  # of a content that is another one by now
    for _ in range(2):
        events.turn()
    assert [(copies / name / "tfevents").read_text() for name in "bc"] == ["b/tfevents", "c/tfevents"]
    assert "".join(capfd.readouterr()).count("cannot be read") == 1
    assert [path.name for path in (tmp_path / "cnn").iterdir() if path.is_file()] == [], "a beginning stays for good"


def test_a_file_that_is_too_large_takes_no_room_of_the_others(
    s3: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_events, "LARGEST", 9)
    monkeypatch.setattr(store_events, "MOST_BYTES", 16)
    url = f"s3://data/boards/{uuid.uuid4().hex}"
    where = object_url(url + "/")
    store = open_store(where, s3.environment)
    for name, size in {"a": 99, "b": 8, "c": 8, "d": 8}.items():
        store.write(f"{where.key}{name}/tfevents", io.BytesIO(b"x" * size), size)
    StoreEvents(url, str(tmp_path), s3.environment).turn()
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == ["b", "c"]


def test_what_a_store_has_is_linked_by_name(s3: Running, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    url = f"s3://data/boards/{uuid.uuid4().hex}"
    where = object_url(url + "/")
    store = open_store(where, s3.environment)

    def put(path: str, content: bytes) -> None:
        store.write(where.key + path, io.BytesIO(content), len(content))

    events = StoreEvents(url, str(tmp_path / "cnn"), s3.environment)
    logs = tmp_path / "logs"
    logs.mkdir()
    put(f"step-1/{SENT}/logs/train/{NAME}", b"one")
    put(f"step-1/{SENT}/weights", b"w")
    for content in (b"one", b"one two"):
        events.turn()
        assert link(str(logs), [("cnn", events.folder)]) == 1
        assert (logs / "cnn" / "train" / NAME).read_bytes() == content
        put(f"step-2/{SENT}/logs/train/{NAME}", b"one two")
    assert capfd.readouterr().err == ""
    wrong = StoreEvents(url, str(tmp_path / "wrong"), {**s3.environment, "AWS_SECRET_ACCESS_KEY": "no"})
    wrong.turn()
    wrong.turn()
    said = "".join(capfd.readouterr())
    assert said.count("cannot be read") == 1 and said.count(url) == 1 and "no\n" not in said

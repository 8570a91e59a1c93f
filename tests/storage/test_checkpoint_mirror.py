"""Checkpoints in real stores: whole or not at all, whatever happens on the way."""

from __future__ import annotations

import json
import os
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from longboat.core.errors import EngineError
from longboat.storage import checkpoint_mirror
from longboat.storage.checkpoint_mirror import Gone, Mirror, fetch_checkpoint
from longboat.storage.checkpoints import complete_steps, files_of, newest_complete
from longboat.storage.stores.registry import open_store
from longboat.storage.transfers import Transfer
from longboat.storage.urls import object_url, run_url
from tests.storage.faulty import Between, between
from tests.storage.realstores import ALONE, READER, Running
from tests.storage.stores.test_gcs import HMAC, NOWHERE

QUICK = Transfer(timeout_s=10.0, attempts=3, backoff_s=0.01)


@pytest.fixture(params=["s3", "azure", "gs"])
def place(request: pytest.FixtureRequest) -> tuple[str, Mapping[str, str]]:
    """An address that no other test has, and the variables to reach it."""
    server: Running = request.getfixturevalue("azure" if request.param == "azure" else "s3")
    name = f"data/ckpt/{uuid.uuid4().hex}"
    if request.param == "gs":  # which speaks S3's language to whoever has an HMAC key
        return f"gs://{name}", {**HMAC, **NOWHERE, "STORAGE_EMULATOR_HOST": server.url}
    return f"{'s3' if request.param == 's3' else 'az'}://{name}", server.environment


@pytest.fixture
def url() -> str:
    return f"s3://data/ckpt/{uuid.uuid4().hex}"


@pytest.fixture
def faulty(s3: Running) -> Iterator[Between]:
    with between(s3.url) as state:
        yield state


def through(s3: Running, faulty: Between) -> dict[str, str]:
    return {**s3.environment, "AWS_ENDPOINT_URL": faulty.url}


def checkpoint(folder: Path, step: int, content: bytes = b"weights") -> Path:
    path = folder / f"step-{step}"
    (path / "shards").mkdir(parents=True)
    (path / "model.bin").write_bytes(content)
    (path / "shards" / "a b%20é?.bin").write_bytes(content * 2)
    (path / "empty").write_bytes(b"")
    (path / ".complete").write_text(json.dumps({"step": step}))
    return path


def content_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def objects(url: str, environment: Mapping[str, str]) -> dict[str, int]:
    where = object_url(url + "/")
    return {found.key[len(where.key) :]: found.size for found in open_store(where, environment).listed(where.key)}


def test_a_checkpoint_comes_back_as_it_was(place: tuple[str, Mapping[str, str]], tmp_path: Path) -> None:
    url, environment = place
    mirror = Mirror(url, environment, QUICK)
    assert mirror.complete() == [] and mirror.fetch_newest(tmp_path / "new") is None and mirror.prune(1) == []
    old, new = checkpoint(tmp_path, 9), checkpoint(tmp_path, 10, os.urandom(40 << 20))
    mirror.send(old)
    mirror.send(new)
    assert mirror.complete() == [(9, "step-9"), (10, "step-10")]
    found = mirror.fetch_newest(tmp_path / "copy")
    assert found == tmp_path / "copy" / "step-10" and content_of(found) == content_of(new)
    assert os.listdir(tmp_path / "copy") == ["step-10"]
    for address in (f"{url}/step-9", f"{url}/step-9/"):
        exact = fetch_checkpoint(address, tmp_path / uuid.uuid4().hex, environment)
        assert exact is not None and content_of(exact) == content_of(old)
    assert fetch_checkpoint(f"{url}/step-8", tmp_path / "none", environment) is None
    assert fetch_checkpoint(f"{url}/step-9", tmp_path / "copy", environment) == tmp_path / "copy" / "step-9"
    assert mirror.url_of("step-10") == f"{url}/step-10"
    assert mirror.remove_all() == 2 and objects(url, environment) == {}


def test_the_newest_stay(place: tuple[str, Mapping[str, str]], tmp_path: Path) -> None:
    url, environment = place
    mirror = Mirror(url, environment, QUICK)
    store = open_store(object_url(url), environment)
    key = object_url(url).key
    for step in (2, 10, 9, 30):
        mirror.send(checkpoint(tmp_path, step))
    store.put(f"{key}/step-3/model.bin", b"never finished")
    store.put(f"{key}/step-31/model.bin", b"on its way")
    store.put(f"{key}/notes.txt", b"not ours")
    assert mirror.prune(0) == ["step-3"]
    assert sorted(mirror.prune(2)) == ["step-2", "step-9"]
    assert mirror.complete() == [(10, "step-10"), (30, "step-30")]
    assert mirror.prune(1) == ["step-10"] and mirror.prune(1) == []
    assert {"step-31/model.bin", "notes.txt"} < objects(url, environment).keys()


def test_the_marker_is_written_last_and_removed_first(s3: Running, faulty: Between, url: str, tmp_path: Path) -> None:
    mirror = Mirror(url, through(s3, faulty), QUICK)
    first = checkpoint(tmp_path, 1)
    mirror.send(first)
    sent = [path for method, path, _ in faulty.requests if method == "PUT"]
    assert len(sent) == 4 and sent[-1].endswith("/.complete")
    assert len({path.partition("/step-1/")[2].partition("/")[0] for path in sent}) == 1
    mirror.send(checkpoint(tmp_path, 2))
    faulty.requests.clear()
    mirror.prune(1)
    removed = [path for method, path, _ in faulty.requests if method == "DELETE"]
    assert len(removed) == 4 and "/step-1/" in removed[0] and removed[0].endswith("/.complete")
    # The same step again, with other files: another folder, and the one before goes once it is complete, marker first.
    (tmp_path / "step-2" / "empty").unlink()
    (tmp_path / "step-2" / ".complete").write_text("again")
    faulty.requests.clear()
    mirror.send(tmp_path / "step-2")
    writes = [(method, path.rpartition("/")[2]) for method, path, _ in faulty.requests if method in ("PUT", "DELETE")]
    assert [method for method, _ in writes] == ["PUT"] * 3 + ["DELETE"] * 4
    assert writes[2] == ("PUT", ".complete") and writes[3] == ("DELETE", ".complete")
    left = [name for name in objects(url, s3.environment) if name.startswith("step-2/")]
    assert len(left) == 3 and not [name for name in left if name.endswith("/empty")]


def test_a_store_that_fails_in_the_middle_has_no_complete_one(
    s3: Running, faulty: Between, url: str, tmp_path: Path
) -> None:
    mirror = Mirror(url, through(s3, faulty), Transfer(timeout_s=10.0, attempts=1))
    path = checkpoint(tmp_path, 5)
    (path / "large.bin").write_bytes(os.urandom(checkpoint_mirror.SMALL + 1))  # sent before all others
    mirror.complete()

    class Third(list):
        """The third write fails."""

        def __bool__(self) -> bool:
            return sum(method == "PUT" for method, _, _ in faulty.requests) == 3

    faulty.answers = Third([(503, "SlowDown")] * 9)
    with pytest.raises(EngineError, match="503 SlowDown"):
        mirror.send(path)
    faulty.answers = []
    assert objects(url, s3.environment) and mirror.complete() == []
    assert mirror.fetch_newest(tmp_path / "copy") is None and mirror.fetch("step-5", tmp_path / "copy") is None
    mirror.send(path)
    found = mirror.fetch_newest(tmp_path / "copy")
    assert found is not None and content_of(found) == content_of(path)


def test_answers_of_a_busy_store_are_waited_out(s3: Running, faulty: Between, url: str, tmp_path: Path) -> None:
    faulty.answers = [(503, "SlowDown"), (500, "InternalError"), (503, "SlowDown")]
    mirror = Mirror(url, through(s3, faulty), Transfer(timeout_s=10.0, attempts=5, backoff_s=0.01))
    mirror.send(checkpoint(tmp_path, 1))
    assert mirror.complete() == [(1, "step-1")] and not faulty.answers


def tampered(monkeypatch: pytest.MonkeyPatch, act: Callable[[], Any]) -> None:
    """Something happens once the first file was sent."""
    plain = Mirror._send_one
    has_acted = threading.Event()

    def send_one(self: Mirror, key: str, path: str) -> int:
        size = plain(self, key, path)
        if not has_acted.is_set():
            has_acted.set()
            act()
        return size

    monkeypatch.setattr(Mirror, "_send_one", send_one)
    monkeypatch.setattr(checkpoint_mirror, "AT_ONCE", 1)


def test_one_that_goes_while_it_is_sent_is_never_complete(
    s3: Running, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = checkpoint(tmp_path, 1)
    tampered(monkeypatch, lambda: os.rename(path, tmp_path / ".removed"))
    mirror = Mirror(url, s3.environment, QUICK)
    with pytest.raises(Gone):
        mirror.send(path)
    assert mirror.complete() == []
    with pytest.raises(Gone):
        mirror.send(tmp_path / "step-77")


def test_one_that_is_replaced_while_it_is_sent_is_never_complete(
    s3: Running, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, other = checkpoint(tmp_path, 1), checkpoint(tmp_path / "other", 1, b"another")

    def replace() -> None:
        os.rename(path, tmp_path / ".old")
        os.rename(other, path)

    tampered(monkeypatch, replace)
    mirror = Mirror(url, s3.environment, QUICK)
    with pytest.raises(Gone):
        mirror.send(path)
    assert mirror.complete() == []


def test_what_somebody_removes_meanwhile_is_told(
    s3: Running, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mirror = Mirror(url, s3.environment, QUICK)
    tampered(monkeypatch, mirror.remove_all)
    with pytest.raises(EngineError, match="somebody else writes there"):
        mirror.send(checkpoint(tmp_path, 1))
    assert mirror.complete() == []


def test_one_that_is_removed_while_it_is_fetched_is_passed_over(
    s3: Running, faulty: Between, url: str, tmp_path: Path
) -> None:
    direct = Mirror(url, s3.environment, QUICK)
    for step in (1, 2):
        direct.send(checkpoint(tmp_path, step))
    faulty.cuts = [3]  # the first read of an object breaks off, and by then somebody prunes
    (gone,) = [copy for copy in direct._contents().copies if copy.name == "step-2"]
    faulty.after_cut = lambda: direct._remove(gone, [".complete", "model.bin"])
    found = Mirror(url, through(s3, faulty), QUICK).fetch_newest(tmp_path / "copy")
    assert found == tmp_path / "copy" / "step-1" and content_of(found) == content_of(tmp_path / "step-1")
    assert os.listdir(tmp_path / "copy") == ["step-1"]


def test_a_fetch_that_breaks_off_looks_like_nothing_and_goes_on_later(
    s3: Running, faulty: Between, url: str, tmp_path: Path
) -> None:
    Mirror(url, s3.environment, QUICK).send(checkpoint(tmp_path, 4, os.urandom(3 << 20)))
    faulty.cuts = [1 << 20] * 9
    mirror = Mirror(url, through(s3, faulty), Transfer(timeout_s=10.0, attempts=1))
    copy = tmp_path / "copy"
    with pytest.raises(EngineError, match="cannot be fetched"):
        mirror.fetch_newest(copy)
    assert complete_steps(copy) == [] and all(name.startswith(".step-4.tmp-") for name in os.listdir(copy))
    faulty.cuts = []
    assert mirror.fetch_newest(copy) == newest_complete(copy) == copy / "step-4"
    assert content_of(copy / "step-4") == content_of(tmp_path / "step-4") and os.listdir(copy) == ["step-4"]


def test_what_is_here_and_newer_is_not_fetched(s3: Running, faulty: Between, url: str, tmp_path: Path) -> None:
    mirror = Mirror(url, through(s3, faulty), QUICK)
    mirror.send(checkpoint(tmp_path / "sent", 4))
    here = tmp_path / "here"
    (here / "step-4").mkdir(parents=True)  # never finished: replaced
    (here / "step-4" / "model.bin").write_bytes(b"half")
    assert mirror.fetch_newest(here) == here / "step-4"
    assert content_of(here / "step-4") == content_of(tmp_path / "sent" / "step-4")
    checkpoint(here, 5)
    faulty.requests.clear()
    assert mirror.fetch_newest(here) == here / "step-5"
    assert [method for method, _, _ in faulty.requests] == ["GET"]  # the list


def test_links_become_what_they_lead_to(tmp_path: Path) -> None:
    path = checkpoint(tmp_path, 1)
    (path / "latest").symlink_to("model.bin")
    (path / "again").symlink_to("shards")
    (path / "round").symlink_to(".")
    (path / "nowhere").symlink_to("/nonexistent")
    os.mkfifo(path / "pipe")
    names = set(files_of(path))
    assert {"model.bin", "empty", "latest", "again/a b%20é?.bin", "shards/a b%20é?.bin"} <= names
    assert not names & {"nowhere", "pipe", ".complete"} and not any(name.startswith("round") for name in names)
    (path / os.fsdecode(b"bad\xff")).write_bytes(b"")
    with pytest.raises(EngineError, match="not UTF-8"):
        files_of(path)


def test_credentials_that_may_not_write_or_see(s3: Running, url: str, tmp_path: Path) -> None:
    reader = {**ALONE, **READER, "AWS_ENDPOINT_URL": s3.url}
    with pytest.raises(EngineError, match="do not allow this"):
        Mirror(url, reader, QUICK).send(checkpoint(tmp_path, 1))
    with pytest.raises(EngineError, match="no credentials were found"):
        Mirror(url, {**ALONE, "AWS_ENDPOINT_URL": s3.url}, QUICK).complete()


@pytest.mark.parametrize("to", ["s3://bucket", "s3://bucket/", "s3://bucket/a/b", "s3://bucket/a/b/"])
def test_each_run_has_a_folder_of_its_own(to: str) -> None:
    assert run_url(to, "train-0123abcd") == f"{to.rstrip('/')}/train-0123abcd"
    assert object_url(run_url(to, "train-0123abcd")).bucket == "bucket"


@pytest.mark.parametrize("moment", ["step-1", "step-2"])
def test_one_that_is_promoted_while_a_prune_is_under_way_stays(
    place: tuple[str, Mapping[str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    mirror = Mirror(*place, QUICK)
    for step in (1, 2, 3):
        mirror.send(checkpoint(tmp_path, step))
    remove = mirror._store.remove

    def removed(key: str) -> None:
        if f"/{moment}/" in key and key.endswith("/.complete"):
            mirror.mark(".promoted-step-2", b"{}")
        remove(key)

    monkeypatch.setattr(mirror._store, "remove", removed)
    assert mirror.prune(1) == ["step-1"]
    assert [step for step, _ in mirror.complete()] == [2, 3]
    fetched = mirror.fetch("step-2", tmp_path / "new")
    assert fetched is not None and content_of(fetched) == content_of(tmp_path / "step-2")

"""Data imports from object stores: the same promises as from a web server, with real servers and every way to fail."""

from __future__ import annotations

import hashlib
import io
import os
import tarfile
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from longboat.core.errors import EngineError, LongboatError, Refused
from longboat.core.jobs import DataImport
from longboat.storage.data import import_data
from longboat.storage.stores.object_store import ObjectStore
from longboat.storage.stores.registry import open_store
from longboat.storage.transfers import Transfer
from longboat.storage.urls import object_url
from tests.storage.faulty import Between, between
from tests.storage.realstores import Running

QUICK = Transfer(timeout_s=10.0, attempts=3, backoff_s=0.01)
DATA = os.urandom(900_000)


@pytest.fixture(params=["s3", "az"])
def server(request: pytest.FixtureRequest) -> tuple[str, Running]:
    """A store of each kind: the scheme of its URLs, and the server."""
    found: Running = request.getfixturevalue({"s3": "s3", "az": "azure"}[request.param])
    return request.param, found


def bucket(server: tuple[str, Running]) -> ObjectStore:
    return open_store(object_url(f"{server[0]}://data"), server[1].environment, QUICK)


def through(server: tuple[str, Running], net: Between) -> dict[str, str]:
    """The server's environment, with requests that go through `net`."""
    base = server[1].url.removesuffix("/devstoreaccount1")
    return {name: value.replace(base, net.url) for name, value in server[1].environment.items()}


def base_of(server: tuple[str, Running]) -> str:
    return server[1].url.removesuffix("/devstoreaccount1")


def brought(url: str, target: Path, environment: Mapping[str, str], **more: object) -> bool:
    item = DataImport(url=url, to="data", **more)  # type: ignore[arg-type]
    return import_data(item, target, environment=environment, transfer=QUICK)


def listing(target: Path) -> dict[str, bytes]:
    files = [path for path in target.rglob("*") if path.is_file() and ".longboat" not in path.parts]
    return {str(path.relative_to(target)): path.read_bytes() for path in files}


def left_over(target: Path) -> list[str]:
    return sorted(path.suffix for path in (target / ".longboat").iterdir())


def test_one_object_once(server: tuple[str, Running], tmp_path: Path) -> None:
    bucket(server).put("one file.bin", DATA)
    url = f"{server[0]}://data/one%20file.bin"
    digest = hashlib.sha256(DATA).hexdigest()
    assert brought(url, tmp_path, server[1].environment, sha256=digest)
    assert listing(tmp_path) == {"one file.bin": DATA}
    assert not brought(url, tmp_path, {"HOME": "/"}, sha256=digest)  # it is there: nobody is asked
    assert left_over(tmp_path) == [".json", ".lock"]
    with pytest.raises(EngineError, match="the sha256 is"):
        brought(url, tmp_path / "other", server[1].environment, sha256="0" * 64)
    assert listing(tmp_path / "other") == {}


def test_an_archive_is_unpacked(server: tuple[str, Running], tmp_path: Path) -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        member = tarfile.TarInfo("folder/inside")
        member.size = 3
        tar.addfile(member, io.BytesIO(b"abc"))
    bucket(server).put("set.tar.gz", packed.getvalue())
    url = f"{server[0]}://data/set.tar.gz"
    brought(url, tmp_path / "a", server[1].environment)
    assert listing(tmp_path / "a") == {"folder/inside": b"abc"}
    brought(url, tmp_path / "b", server[1].environment, unpack=False)
    assert listing(tmp_path / "b") == {"set.tar.gz": packed.getvalue()}


def test_a_cut_connection_is_carried_on_where_it_broke(server: tuple[str, Running], tmp_path: Path) -> None:
    bucket(server).put("cut", DATA)
    with between(base_of(server)) as net:
        net.cuts += [300_000, 0, 200_000, 100_000]
        brought(f"{server[0]}://data/cut", tmp_path, through(server, net))
        ranges = net.asked("range")
        assert ranges == ["bytes=300000-", "bytes=300000-", "bytes=500000-", "bytes=600000-"]
        assert len(set(net.asked("if-match"))) == 1
    assert listing(tmp_path) == {"cut": DATA}


def test_an_import_that_was_given_up_is_carried_on_by_the_next(server: tuple[str, Running], tmp_path: Path) -> None:
    bucket(server).put("again", DATA)
    with between(base_of(server)) as net:
        net.cuts += [400_000, 0, 0]
        with pytest.raises(EngineError, match="broke off after 400,000"):
            brought(f"{server[0]}://data/again", tmp_path, through(server, net))
        assert listing(tmp_path) == {}
        net.requests.clear()
        brought(f"{server[0]}://data/again", tmp_path, through(server, net))
        assert net.asked("range") == ["bytes=400000-"]
    assert listing(tmp_path) == {"again": DATA}


def test_an_object_that_changes_under_the_download_is_whole(server: tuple[str, Running], tmp_path: Path) -> None:
    store = bucket(server)
    store.put("changing", DATA)
    newer = os.urandom(len(DATA))
    with between(base_of(server)) as net:
        net.cuts.append(500_000)
        net.after_cut = lambda: store.put("changing", newer)
        brought(f"{server[0]}://data/changing", tmp_path, through(server, net))
        assert net.asked("range") == ["bytes=500000-"]
    assert listing(tmp_path) == {"changing": newer}


def test_a_busy_store_is_waited_for(server: tuple[str, Running], tmp_path: Path) -> None:
    bucket(server).put("busy", DATA)
    code = {"s3": "SlowDown", "az": "ServerBusy"}[server[0]]
    with between(base_of(server)) as net:
        net.answers += [(503, code)] * 2
        brought(f"{server[0]}://data/busy", tmp_path / "a", through(server, net))
        assert listing(tmp_path / "a") == {"busy": DATA}
        net.answers += [(503, code)] * 3
        with pytest.raises(EngineError, match=f"data/busy: cannot be fetched: the store answers 503 {code}"):
            brought(f"{server[0]}://data/busy", tmp_path / "b", through(server, net))


def filled(store: ObjectStore, prefix: str) -> dict[str, bytes]:
    files = {f"{number % 7}/deep er/{number}.bin": os.urandom(100 * number) for number in range(60)}
    files["top"] = b""
    with ThreadPoolExecutor(max_workers=8) as pool:
        list(pool.map(lambda item: store.put(prefix + item[0], item[1]), files.items()))
    return files


def test_everything_below_a_prefix(server: tuple[str, Running], tmp_path: Path) -> None:
    store = bucket(server)
    files = filled(store, "below/")
    store.put("below-not", b"x")
    url = f"{server[0]}://data/below/"
    assert brought(url, tmp_path, server[1].environment)
    assert listing(tmp_path) == files
    assert not brought(url, tmp_path, {"HOME": "/"})
    assert left_over(tmp_path) == [".json", ".lock"]
    with pytest.raises(EngineError, match="no objects below") as caught:
        brought(f"{server[0]}://data/belo/", tmp_path / "none", server[1].environment)
    assert caught.value.hint is not None and "/" in caught.value.hint


def test_objects_below_a_prefix_are_fetched_as_they_were_listed(server: tuple[str, Running], tmp_path: Path) -> None:
    """ETags of lists are those of objects: each is asked for once, and for that version only."""
    store = bucket(server)
    files = filled(store, "listed/")
    with between(base_of(server)) as net:
        brought(f"{server[0]}://data/listed/", tmp_path / "a", through(server, net))
        reads = [headers for method, path, headers in net.requests if method == "GET" and "?" not in path]
        assert len(reads) == len(files) and all("if-match" in headers for headers in reads)
        assert listing(tmp_path / "a") == files
        newer = {name: data + b"newer" for name, data in files.items()}

        def rewrite() -> None:
            for name, data in newer.items():
                store.put(f"listed/{name}", data)

        net.cuts.append(0)
        net.after_cut = rewrite
        item = DataImport(url=f"{server[0]}://data/listed/", to="data")
        patient = QUICK._replace(backoff_s=1.0)  # after 1, 4 and 16 s all are rewritten
        import_data(item, tmp_path / "b", environment=through(server, net), transfer=patient)
    assert listing(tmp_path / "b") == newer


def test_a_prefix_with_trouble_on_the_way(server: tuple[str, Running], tmp_path: Path) -> None:
    files = filled(bucket(server), "trouble/")
    url = f"{server[0]}://data/trouble/"
    with between(base_of(server)) as net:
        net.answers += [(503, "SlowDown")] * 2
        net.cuts += [50] * 20
        brought(url, tmp_path / "a", through(server, net))
        assert listing(tmp_path / "a") == files
        net.cuts += [0] * 1000
        with pytest.raises(EngineError, match="broke off"):
            brought(url, tmp_path / "b", through(server, net))
        assert listing(tmp_path / "b") == {}
        net.cuts.clear()
        brought(url, tmp_path / "b", through(server, net))
    assert listing(tmp_path / "b") == files


def test_what_arrived_of_a_prefix_is_not_fetched_again(s3: Running, tmp_path: Path) -> None:
    server = ("s3", s3)
    store = bucket(server)
    for number in range(30):
        store.put(f"arrived/{number:02}", bytes(1000 + number))
    with between(s3.url) as net:
        # Every object gets through, but for one that is gone between the list and its turn.
        environment = through(server, net)
        removed = threading.Event()

        def remove() -> None:
            store.remove("arrived/29")
            removed.set()

        net.cuts.append(0)
        net.after_cut = remove
        with pytest.raises(LongboatError, match="arrived/29: there is no such object"):
            brought("s3://data/arrived/", tmp_path, environment)
        assert removed.is_set() and listing(tmp_path) == {}
        before = {path for method, path, _ in net.requests if method == "GET" and "?" not in path}
        net.requests.clear()
        brought("s3://data/arrived/", tmp_path, environment)
        again = {path for method, path, _ in net.requests if method == "GET" and "?" not in path}
        assert len(listing(tmp_path)) == 29 and not again & {path for path in before if not path.endswith("29")}


def test_many_who_ask_at_once_import_once(s3: Running, tmp_path: Path) -> None:
    bucket(("s3", s3)).put("at-once/x", DATA)
    with between(s3.url) as net, ThreadPoolExecutor(max_workers=6) as pool:
        environment = through(("s3", s3), net)
        done = list(pool.map(lambda _: brought("s3://data/at-once/", tmp_path, environment), range(6)))
        assert sorted(done) == [False] * 5 + [True]
        assert len([1 for method, path, _ in net.requests if path.endswith("at-once/x")]) == 1


def test_a_hash_of_many_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Refused):
        brought("s3://data/x/", tmp_path / "x", {}, sha256="0" * 64)
    assert not (tmp_path / "x").exists()


def test_no_secret_is_left_on_the_disk(s3: Running, tmp_path: Path) -> None:
    bucket(("s3", s3)).put("disk/x", DATA)
    with between(s3.url) as net:
        net.cuts += [1000, 0, 0]
        with pytest.raises(EngineError):
            brought("s3://data/disk/x", tmp_path, through(("s3", s3), net))
    for path in tmp_path.rglob("*"):
        assert not path.is_file() or b"canary" not in path.read_bytes()

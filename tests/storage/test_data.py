"""Data is imported once, whole or not at all."""

from __future__ import annotations

import hashlib
import io
import os
import subprocess
import sys
import tarfile
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from longboat.core.errors import BundleError, EngineError, Refused
from longboat.core.jobs import DataImport
from longboat.storage.data import import_data
from longboat.storage.download import Transfer
from tests.bundles.trees import contents, make
from tests.storage.servers import Site, serving

QUICK = Transfer(timeout_s=5.0, attempts=2, backoff_s=0.01)


@pytest.fixture
def site() -> Iterator[Site]:
    with serving() as one:
        one.files["/set.tar.gz"] = archive({"set/train.csv": b"1,2", "set/deep/test.csv": b"3"})
        one.files["/plain.csv"] = b"a,b\n"
        yield one


def archive(files: dict[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as tar:
        for name, data in files.items():
            header = tarfile.TarInfo(name)
            header.size = len(data)
            tar.addfile(header, io.BytesIO(data))
    return stream.getvalue()


def seen(target: Path) -> dict[str, str | bytes]:
    return {name: text for name, text in contents(target).items() if not name.startswith(".longboat/")}


def item(site: Site, path: str = "/set.tar.gz", **more: object) -> DataImport:
    return DataImport(url=site.url + path, to="data", **more)  # type: ignore[arg-type]


SET = {"set/train.csv": b"1,2", "set/deep/test.csv": b"3"}


def test_once_and_only_once(tmp_path: Path, site: Site) -> None:
    assert import_data(item(site), tmp_path / "data", transfer=QUICK) is True
    assert seen(tmp_path / "data") == SET
    assert import_data(item(site), tmp_path / "data", transfer=QUICK) is False
    assert len(site.requests) == 1


def test_nothing_but_the_marker_is_left_behind(tmp_path: Path, site: Site) -> None:
    import_data(item(site, "/set.tar.gz?signature=hush"), tmp_path / "data", transfer=QUICK)
    own = sorted((tmp_path / "data/.longboat").iterdir())
    assert [path.suffix for path in own] == [".json", ".lock"]
    assert b"hush" not in own[0].read_bytes()


def test_progress_is_told(tmp_path: Path, site: Site) -> None:
    told: list[tuple[int, int | None]] = []
    import_data(item(site), tmp_path / "data", progress=lambda *now: told.append(now), transfer=QUICK)
    size = len(site.files["/set.tar.gz"])
    assert told[-1] == (size, size)


def test_a_zip_archive_is_unpacked(tmp_path: Path, site: Site) -> None:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as pack:
        pack.writestr("a/b", "1")
    site.files["/set.ZIP"] = stream.getvalue()
    import_data(item(site, "/set.ZIP"), tmp_path / "data", transfer=QUICK)
    assert seen(tmp_path / "data") == {"a/b": b"1"}


def test_what_is_not_unpacked(tmp_path: Path, site: Site) -> None:
    import_data(item(site, "/plain.csv"), tmp_path / "data", transfer=QUICK)
    import_data(item(site, unpack=False), tmp_path / "data", transfer=QUICK)
    assert seen(tmp_path / "data") == {"plain.csv": b"a,b\n", "set.tar.gz": site.files["/set.tar.gz"]}


def test_a_wrong_checksum_is_refused(tmp_path: Path, site: Site) -> None:
    right = hashlib.sha256(site.files["/set.tar.gz"]).hexdigest()
    with pytest.raises(EngineError, match=f"the sha256 is {right}") as caught:
        import_data(item(site, sha256="0" * 64), tmp_path / "data", transfer=QUICK)
    assert caught.value.hint
    assert seen(tmp_path / "data") == {}
    assert import_data(item(site, sha256=right.upper()), tmp_path / "data", transfer=QUICK)
    assert seen(tmp_path / "data") == SET


def test_a_connection_that_breaks_midway(tmp_path: Path, site: Site) -> None:
    site.files["/set.tar.gz"] = archive({"big": os.urandom(400_000)})
    site.breaks = [100_000, 100_000]
    import_data(item(site), tmp_path / "data", transfer=QUICK)
    assert len(seen(tmp_path / "data")["big"]) == 400_000


def test_a_failed_import_shows_nothing_and_can_be_repeated(tmp_path: Path, site: Site) -> None:
    site.breaks = [50, 0, 0]
    with pytest.raises(EngineError, match="broke off"):
        import_data(item(site), tmp_path / "data", transfer=QUICK)
    assert seen(tmp_path / "data") == {}
    site.breaks = []
    assert import_data(item(site), tmp_path / "data", transfer=QUICK)
    assert seen(tmp_path / "data") == SET


def test_a_hostile_archive(tmp_path: Path, site: Site) -> None:
    site.files["/set.tar.gz"] = archive({"fine": b"1", "../../evil": b"2"})
    with pytest.raises(BundleError) as caught:
        import_data(item(site), tmp_path / "data", transfer=QUICK)
    assert caught.value.message.startswith(f"{site.url}/set.tar.gz: ")
    assert str(caught.value) == caught.value.message
    assert all(name.startswith("data/.longboat/") for name in contents(tmp_path))


def test_two_imports_share_a_folder(tmp_path: Path, site: Site) -> None:
    site.files["/more.tar"] = archive({"set/more.csv": b"4", "set/deep/test.csv": b"newer"})
    make(tmp_path / "data", {"mine.txt": "kept"})
    import_data(item(site), tmp_path / "data", transfer=QUICK)
    import_data(item(site, "/more.tar"), tmp_path / "data", transfer=QUICK)
    expected = {"mine.txt": b"kept", "set/train.csv": b"1,2", "set/deep/test.csv": b"newer", "set/more.csv": b"4"}
    assert seen(tmp_path / "data") == expected


def test_what_is_in_the_way_is_named_and_kept(tmp_path: Path, site: Site) -> None:
    make(tmp_path / "elsewhere", {"x": "1"})
    for number, obstacle in enumerate(("a file", f"->{tmp_path}/elsewhere")):
        target = make(tmp_path / str(number), {"set": obstacle})
        with pytest.raises(EngineError, match="set: in the way"):
            import_data(item(site), target, transfer=QUICK)
        assert len(seen(target)) == 1
    assert contents(tmp_path / "elsewhere") == {"x": b"1"}


def test_a_folder_that_was_emptied_is_filled_again(tmp_path: Path, site: Site) -> None:
    import_data(item(site), tmp_path / "data", transfer=QUICK)
    os.rename(tmp_path / "data/set", tmp_path / "moved")
    assert import_data(item(site), tmp_path / "data", transfer=QUICK)
    assert seen(tmp_path / "data") == SET


def test_a_file_url(tmp_path: Path, site: Site) -> None:
    (tmp_path / "x.tgz").write_bytes(site.files["/set.tar.gz"])
    import_data(DataImport(url=f"file://{tmp_path}/x.tgz", to="data"), tmp_path / "data")
    assert seen(tmp_path / "data") == SET
    assert (tmp_path / "x.tgz").exists()


def test_what_can_never_work(tmp_path: Path) -> None:
    with pytest.raises(Refused):
        import_data(DataImport(url="s3://bucket/x?y", to="data"), tmp_path / "data")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").write_text("")
    with pytest.raises(EngineError):
        import_data(DataImport(url="file:///x", to="data"), tmp_path / "file")


SCRIPT = """
import sys
from pathlib import Path
from longboat.core.jobs import DataImport
from longboat.storage.data import import_data
print("up", flush=True)
print(import_data(DataImport(url=sys.argv[1], to="data"), Path(sys.argv[2])))
"""


def start(site: Site, target: Path) -> subprocess.Popen[str]:
    """An importer of its own, about to begin."""
    command = [sys.executable, "-c", SCRIPT, f"{site.url}/set.tar.gz", str(target)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    return process


def test_many_at_once_fetch_once(tmp_path: Path, site: Site) -> None:
    processes = [start(site, tmp_path / "data") for _ in range(4)]
    told = [process.communicate()[0].strip() for process in processes]
    assert sorted(told) == ["False", "False", "False", "True"]
    assert len(site.requests) == 1
    assert seen(tmp_path / "data") == SET


def test_a_killed_importer_leaves_no_trace_to_see(tmp_path: Path, site: Site) -> None:
    site.files["/set.tar.gz"] = archive({f"set/{n}": os.urandom(3000) for n in range(300)})
    for delay_s in (0.0, 0.02, 0.05, 0.1):
        process = start(site, tmp_path / "data")
        time.sleep(delay_s)
        process.kill()
        process.communicate()
        assert len(seen(tmp_path / "data")) in (0, 300)
    import_data(item(site), tmp_path / "data", transfer=QUICK)
    assert len(seen(tmp_path / "data")) == 300
    assert not list((tmp_path / "data/.longboat").glob("*.part"))

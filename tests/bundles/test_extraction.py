"""Archives of strangers: good ones come out whole, bad ones leave nothing, and nothing ever lands outside."""

from __future__ import annotations

import errno
import gzip
import io
import os
import stat
import tarfile
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from longboat.bundles.archive import extract
from longboat.bundles.manifests import TreeLimits
from longboat.core.errors import BundleError, EngineError
from tests.bundles.trees import contents, make

Member = tuple[str, bytes, str]
"""Name, type of tar, content or target."""

REG, DIR, SYM, LNK = tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE


def tar(place: Path, members: Sequence[Member], mode: str = "w:gz") -> Path:
    with tarfile.open(place, mode) as archive:  # type: ignore[call-overload]
        for name, kind, text in members:
            header = tarfile.TarInfo(name)
            header.type = kind
            if kind == REG:
                header.size = len(text.encode())
                archive.addfile(header, io.BytesIO(text.encode()))
            else:
                header.linkname = text
                archive.addfile(header)
    return place


GOOD: list[Member] = [
    ("./", DIR, ""),
    ("./d/", DIR, ""),
    ("./d/a.txt", REG, "hello"),
    ("implied/deep/b", REG, "x"),
    ("d/link", SYM, "../implied/deep/b"),
    ("d/same", LNK, "./d/a.txt"),
    ("d", DIR, ""),
    ("empty", DIR, ""),
]


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:bz2", "w:xz"])
def test_tar(tmp_path: Path, mode: str) -> None:
    extract(tar(tmp_path / "x", GOOD, mode), tmp_path / "out")
    assert contents(tmp_path / "out") == {
        "d/a.txt": b"hello",
        "implied/deep/b": b"x",
        "d/link": "->../implied/deep/b",
        "d/same": b"hello",
    }
    assert (tmp_path / "out/empty").is_dir()
    assert (tmp_path / "out/d/same").stat().st_nlink == 1


def test_what_the_tar_command_makes(tmp_path: Path) -> None:
    root = make(tmp_path / "tree", {"a b": "1", "sub/ü": "2", "l": "->sub/ü", "long/" + "n" * 200: "3"})
    (root / "a b").chmod(0o755)
    with tarfile.open(tmp_path / "x.tar", "w", format=tarfile.PAX_FORMAT) as archive:
        archive.add(root, ".")
    extract(tmp_path / "x.tar", tmp_path / "out")
    assert contents(tmp_path / "out") == contents(root)
    assert os.access(tmp_path / "out/a b", os.X_OK)


def test_zip(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "x.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("d/", "")
        archive.writestr("d/a.txt", "hello")
        archive.writestr("deep/er/b", "x" * 100_000)
        link = zipfile.ZipInfo("d/link")
        link.create_system, link.external_attr = 3, (stat.S_IFLNK | 0o777) << 16
        archive.writestr(link, "a.txt")
        script = zipfile.ZipInfo("run")
        script.create_system, script.external_attr = 3, (stat.S_IFREG | 0o755) << 16
        archive.writestr(script, "#!")
    extract(tmp_path / "x.zip", tmp_path / "out")
    expected = {"d/a.txt": b"hello", "deep/er/b": b"x" * 100_000, "d/link": "->a.txt", "run": b"#!"}
    assert contents(tmp_path / "out") == expected
    assert os.access(tmp_path / "out/run", os.X_OK)


def refused(tmp_path: Path, archive: Path, limits: TreeLimits = TreeLimits()) -> str:  # noqa: B008
    before = {path for path in tmp_path.rglob("*") if path != archive}
    with pytest.raises(BundleError) as caught:
        extract(archive, tmp_path / "out", limits)
    assert {path for path in tmp_path.rglob("*") if path != archive} == before
    assert str(archive) in caught.value.message
    return caught.value.message


@pytest.mark.parametrize(
    "members",
    [
        [("../evil", REG, "x")],
        [("a/../../evil", REG, "x")],
        [("/tmp/evil", REG, "x")],
        [("..", DIR, "")],
        [("a\nb", REG, "x")],
        [("a", REG, "x"), ("a", REG, "y")],
        [("a", REG, "x"), ("./a", REG, "y")],
        [("a", REG, "x"), ("a", DIR, "")],
        [("a", REG, "x"), ("a/b", REG, "y")],
        [("a", DIR, ""), ("a", SYM, "b")],
        [("l", SYM, "/etc")],
        [("l", SYM, "..")],
        [("l", SYM, "../../etc/passwd")],
        [("d/l", SYM, "../../x")],
        [("l", SYM, "")],
        [("l", SYM, "d"), ("l/x", REG, "through a link")],
        [("a/b/d", SYM, "../.."), ("a/b/c/x", SYM, "../d/..")],
        [("h", LNK, "/etc/passwd")],
        [("h", LNK, "../evil")],
        [("h", LNK, "later"), ("later", REG, "x")],
        [("l", SYM, "x"), ("h", LNK, "l")],
        [("c", tarfile.CHRTYPE, "")],
        [("b", tarfile.BLKTYPE, "")],
        [("f", tarfile.FIFOTYPE, "")],
        [("", REG, "x")],
        [("x" * 300, REG, "x")],
        [("fine", REG, "x"), ("d/fine", REG, "y"), ("../evil", REG, "x")],
    ],
)
def test_hostile_tars(tmp_path: Path, members: list[Member]) -> None:
    refused(tmp_path, tar(tmp_path / "x.tar.gz", members))


@pytest.mark.parametrize("name", ["../evil", "/tmp/evil", "a/../../evil", "..\\evil", "C:\\evil", "a\x01b"])
def test_hostile_names_in_zips(tmp_path: Path, name: str) -> None:
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        archive.writestr("fine", "x")
        archive.writestr(name, "x")
    refused(tmp_path, tmp_path / "x.zip")


@pytest.mark.parametrize("mode", [stat.S_IFLNK, stat.S_IFIFO, stat.S_IFCHR])
def test_hostile_kinds_in_zips(tmp_path: Path, mode: int) -> None:
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        odd = zipfile.ZipInfo("odd")
        odd.create_system, odd.external_attr = 3, (mode | 0o777) << 16
        archive.writestr(odd, "../../etc/passwd")
    refused(tmp_path, tmp_path / "x.zip")


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_the_same_name_twice_in_a_zip(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        archive.writestr("a", "x")
        archive.writestr("a", "y")
    assert "twice" in refused(tmp_path, tmp_path / "x.zip")


def test_size_and_count_are_limited(tmp_path: Path) -> None:
    members: list[Member] = [(f"f{n}", REG, "x" * 100) for n in range(10)]
    archive = tar(tmp_path / "x.tar.gz", members)
    assert "larger than 500 bytes" in refused(tmp_path, archive, TreeLimits(max_bytes=500))
    assert "more than 5 members" in refused(tmp_path, archive, TreeLimits(max_files=5))
    extract(archive, tmp_path / "fine", TreeLimits(max_bytes=1000, max_files=10))
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as pack:
        for name, _, text in members:
            pack.writestr(name, text)
    refused(tmp_path, tmp_path / "x.zip", TreeLimits(max_bytes=500))
    refused(tmp_path, tmp_path / "x.zip", TreeLimits(max_files=5))


def test_bombs(tmp_path: Path) -> None:
    limits = TreeLimits(max_ratio=100, ratio_from=1 << 20)
    bomb = tar(tmp_path / "x.tar.gz", [("zeros", REG, "\0" * (8 << 20))])
    assert "grows more than 100 times" in refused(tmp_path, bomb, limits)
    with zipfile.ZipFile(tmp_path / "x.zip", "w", zipfile.ZIP_DEFLATED) as pack:
        pack.writestr("zeros", "\0" * (8 << 20))
    assert "grows more than 100 times" in refused(tmp_path, tmp_path / "x.zip", limits)


def test_a_header_that_would_fill_the_memory(tmp_path: Path) -> None:
    for kind in (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME):
        header = tarfile.TarInfo("long")
        header.type, header.size = kind, 1 << 30
        data = header.tobuf() + b"\0" * (64 << 10)
        (tmp_path / "x.tar.gz").write_bytes(gzip.compress(data))
        assert "header" in refused(tmp_path, tmp_path / "x.tar.gz")


def test_a_sparse_file_is_counted_by_what_it_becomes(tmp_path: Path) -> None:
    header = tarfile.TarInfo("sparse")
    header.size = 0
    header.pax_headers = {
        "GNU.sparse.major": "0",
        "GNU.sparse.minor": "1",
        "GNU.sparse.name": "sparse",
        "GNU.sparse.size": str(1 << 40),
        "GNU.sparse.map": f"{1 << 40},0",
    }
    with tarfile.open(tmp_path / "x.tar", "w", format=tarfile.PAX_FORMAT) as archive:
        archive.addfile(header)
    assert "larger than" in refused(tmp_path, tmp_path / "x.tar")


@pytest.mark.parametrize(
    "data", [b"", b"no archive at all", b"PK\3\4 broken", b"\x1f\x8b broken", b"BZh broken", b"\xfd7zXZ\0 broken"]
)
def test_no_archives(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "x").write_bytes(data)
    refused(tmp_path, tmp_path / "x")


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:bz2", "w:xz"])
def test_an_archive_that_breaks_off(tmp_path: Path, mode: str) -> None:
    whole = tar(tmp_path / "x", [("a", REG, os.urandom(20_000).hex())], mode).read_bytes()
    (tmp_path / "x").write_bytes(whole[: len(whole) // 2])
    refused(tmp_path, tmp_path / "x")


def test_an_encrypted_zip(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        archive.writestr("a", "x")
    data = bytearray((tmp_path / "x.zip").read_bytes())
    data[6] |= 1
    data[data.index(b"PK\1\2") + 8] |= 1
    (tmp_path / "x.zip").write_bytes(data)
    assert "encrypted" in refused(tmp_path, tmp_path / "x.zip")


def test_the_target_has_to_be_empty(tmp_path: Path) -> None:
    archive = tar(tmp_path / "x.tar", [("a", REG, "x")], "w")
    make(tmp_path / "out", {"a": "mine"})
    with pytest.raises(EngineError, match="empty folder"):
        extract(archive, tmp_path / "out")
    assert contents(tmp_path / "out") == {"a": b"mine"}
    with pytest.raises(EngineError):
        extract(tmp_path / "missing", tmp_path / "new")


parts = st.sampled_from(["a", "b", "..", ".", "", "c"])
texts = st.lists(parts, min_size=1, max_size=4).map("/".join)
members = st.lists(st.tuples(texts, st.sampled_from([REG, DIR, SYM, LNK]), texts), min_size=1, max_size=6)


def _is_loop(path: Path) -> bool:
    try:
        os.stat(path)
    except OSError as error:
        return error.errno == errno.ELOOP
    return False


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(members)
def test_nothing_ever_lands_outside(members: list[Member]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        outer = Path(folder, "outer")
        make(outer, {"a": "mine", "b/c": "mine"})
        archive = tar(Path(folder, "x.tar"), members, "w")
        target = outer / "target"
        try:
            extract(archive, target)
        except BundleError:
            assert not target.exists()
        else:
            for path in target.rglob("*"):
                if path.is_symlink() and _is_loop(path):
                    continue  # it leads nowhere, and realpath makes something up for it
                assert (os.path.realpath(path) + "/").startswith(os.path.realpath(target) + "/")
        outside = {name: text for name, text in contents(outer).items() if not name.startswith("target/")}
        assert outside == {"a": b"mine", "b/c": b"mine"}

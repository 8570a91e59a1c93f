"""Copies into folders in which somebody has put links: nothing is ever written where they lead."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from longboat.bundles import merging
from longboat.bundles.merging import check_replaceable, merge
from longboat.core.errors import EngineError
from longboat.engines.kubernetes.exec.pod_exec import settle
from longboat.engines.shared.files import copy
from tests.bundles.trees import make


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """What must stay as it is."""
    return make(tmp_path / "outside", {"file": "mine", "folder/file": "mine"})


def untouched(outside: Path) -> bool:
    files = {str(path.relative_to(outside)): path.read_text() for path in outside.rglob("*") if path.is_file()}
    return files == {"file": "mine", "folder/file": "mine"}


def test_files_links_and_folders_are_merged(tmp_path: Path) -> None:
    source = make(tmp_path / "source", {"a": "new", "sub/b": "new", "run.sh": "x"})
    (source / "run.sh").chmod(0o755)
    (source / "link").symlink_to("a")
    os.mkfifo(source / "pipe")
    target = make(tmp_path / "target", {"a": "old", "sub/c": "old"})
    (target / "link").symlink_to("nowhere")
    merge(str(source), str(target))
    merge(str(source), str(target))  # twice is the same
    names = sorted(str(path.relative_to(target)) for path in target.rglob("*"))
    assert names == ["a", "link", "run.sh", "sub", "sub/b", "sub/c"]
    assert (target / "a").read_text() == "new" and os.readlink(target / "link") == "a"
    assert stat.S_IMODE((target / "run.sh").stat().st_mode) == 0o755


def test_a_file_replaces_a_link_and_not_what_it_leads_to(tmp_path: Path, outside: Path) -> None:
    source = make(tmp_path / "source", {"a": "new", "sub/b": "new"})
    target = make(tmp_path / "target", {"sub/x": ""})
    (target / "a").symlink_to(outside / "file")
    (target / "sub/b").symlink_to(outside / "not-yet")
    merge(str(source), str(target))
    assert untouched(outside) and not (target / "a").is_symlink() and (target / "sub/b").read_text() == "new"


@pytest.mark.parametrize("leads_to", ["folder", "file", "nothing"])
def test_a_link_in_the_place_of_a_folder_is_refused(tmp_path: Path, outside: Path, leads_to: str) -> None:
    source = make(tmp_path / "source", {"sub/file": "new"})
    target = make(tmp_path / "target", {"x": ""})
    (target / "sub").symlink_to(outside / leads_to)
    with pytest.raises(EngineError, match="sub is a link, which leads elsewhere") as caught:
        merge(str(source), str(target))
    assert untouched(outside) and caught.value.hint is not None


def test_what_cannot_be_replaced_is_told(tmp_path: Path) -> None:
    source = make(tmp_path / "source", {"a": "1", "b/c": "1"})
    with pytest.raises(EngineError, match="a is a folder and what is copied is not"):
        merge(str(source), str(make(tmp_path / "one", {"a/x": ""})))
    with pytest.raises(EngineError, match="b is a file and what is copied there is a folder"):
        merge(str(source), str(make(tmp_path / "two", {"b": ""})))
    assert not list(tmp_path.rglob(".longboat-*"))


def test_folders_on_the_way_are_no_links_either(tmp_path: Path, outside: Path) -> None:
    source = make(tmp_path / "source", {"x": "new"}) / "x"
    root = make(tmp_path / "root", {"out/y": ""})
    merge(str(source), str(root / "made/on/the/way/x"), str(root))
    (root / "out/evil").symlink_to(outside)
    with pytest.raises(EngineError, match="evil is a link"):
        merge(str(source), str(root / "out/evil/file"), str(root))
    with pytest.raises(EngineError, match="outside of"):
        merge(str(source), str(root / "../x"), str(root))
    assert untouched(outside) and (root / "made/on/the/way/x").read_text() == "new"


def test_folders_without_end_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merging, "MOST_DEPTH", 5)
    source = make(tmp_path / "source", {"1/2/3/4/5/6/file": "x"})
    with pytest.raises(EngineError, match="more than 5 folders"):
        merge(str(source), str(tmp_path / "target"))


def test_cp_of_both_engines_and_artifacts_go_through_no_link(tmp_path: Path, outside: Path) -> None:
    for number, way in enumerate((settle, copy)):
        source = make(tmp_path / f"source{number}", {"folder/file": "new", "file": "new"})
        target = make(tmp_path / f"target{number}", {"x": ""})
        (target / "file").symlink_to(outside / "file")
        (target / "folder").symlink_to(outside / "folder")
        with pytest.raises(EngineError, match="folder is a link"):
            way(source, target)
        (target / "itself").symlink_to(outside)
        with pytest.raises(EngineError, match="itself is a link"):
            way(source, target / "itself")
        way(source / "file", target / "file")
        assert untouched(outside)


@given(st.lists(st.sampled_from(["a", "b", "a/b", "a/c", "b/a", "c/a/b"]), min_size=1, max_size=4), st.data())
@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_nothing_leaves_whatever_links_there_are(names: list[str], data: st.DataObject) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        outside = make(Path(folder) / "outside", {"a": "mine", "b": "mine", "d/a": "mine"})
        source, target = Path(folder) / "source", Path(folder) / "target"
        target.mkdir()
        for name in names:
            if not any(other.startswith(f"{name}/") or name.startswith(f"{other}/") for other in names):
                make(source, {name: "new"})
        source.mkdir(exist_ok=True)
        for name in data.draw(st.sets(st.sampled_from(["a", "b", "c"]), max_size=3)):
            (target / name).symlink_to(outside / data.draw(st.sampled_from(["a", "b", "d", "new"])))
        try:
            merge(str(source), str(target))
        except EngineError:
            pass
        left = {str(path.relative_to(outside)): path.read_text() for path in outside.rglob("*") if path.is_file()}
        assert left == {"a": "mine", "b": "mine", "d/a": "mine"}


@pytest.mark.parametrize("kind", [stat.S_IFIFO, stat.S_IFSOCK, stat.S_IFCHR])
def test_what_is_no_file_is_not_replaced(tmp_path: Path, kind: int) -> None:
    """Root could put a file in the place of /dev/null."""
    if kind == stat.S_IFCHR and os.getuid():
        pytest.skip("needs root, to make a device")
    make(tmp_path / "source", {"name": "text"})
    (tmp_path / "target").mkdir()
    os.mknod(tmp_path / "target" / "name", kind | 0o600, os.makedev(1, 3))
    with pytest.raises(EngineError, match="target/name is a device, a pipe or a socket and is not replaced"):
        merge(str(tmp_path / "source"), str(tmp_path / "target"))
    assert stat.S_IFMT((tmp_path / "target" / "name").lstat().st_mode) == kind
    assert os.listdir(tmp_path / "target") == ["name"], "no draft is left"


def test_links_of_the_system_are_not_replaced() -> None:
    devices = os.open("/dev", os.O_RDONLY)
    with pytest.raises(EngineError, match="/dev/stdout is a device"):
        check_replaceable((devices, "stdout"), "/dev/stdout")
    os.close(devices)

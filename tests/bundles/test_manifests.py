from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longboat.bundles.manifests import (
    CodeSnapshot,
    Entry,
    check_name,
    check_tree,
    in_order,
    leaves_lexically,
    leaves_tree,
    tree_hash,
)
from longboat.core.errors import BundleError

HASH = "0" * 64


def link(path: str, target: str) -> Entry:
    return Entry(path=path, kind="link", target=target)


def file(path: str, hash: str = HASH, size: int = 0) -> Entry:
    return Entry(path=path, hash=hash, size=size)


def test_the_hash_of_a_tree_never_changes() -> None:
    entries = (
        Entry(path="a", hash=HASH, size=3),
        Entry(path="b", hash=HASH, size=3, executable=True),
        link("c", "a"),
    )
    assert tree_hash(entries) == "965cfd758903bf92cd2f1741ed4cf22f6537ed33a9811fcba51bf9c19684cc5d"


@pytest.mark.parametrize(
    "other",
    [
        (file("a"), file("bc")),
        (file("ab"),),
        (file("a"), Entry(path="b", hash=HASH, executable=True)),
        (file("a"), file("b", "1" * 64)),
        (file("a"), link("b", HASH)),
        (file("a"), link("b", "a")),
        (),
    ],
)
def test_different_trees_have_different_hashes(other: tuple[Entry, ...]) -> None:
    assert tree_hash((file("a"), file("b"))) != tree_hash(other)


def test_order_is_that_of_bytes() -> None:
    names = ["ä", "b", "a/b", "a.b", "Z", "\U0001f600", "\uffee"]
    ordered = [entry.path for entry in in_order(map(file, names))]
    assert ordered == sorted(names, key=lambda name: name.encode())


@pytest.mark.parametrize(
    "name",
    ["", "/", "/a", "a/", "a//b", "..", "a/..", "../a", "a/../b", ".", "./a", "a\0b", "x" * 256, "a/" * 3000 + "a"],
)
def test_names_that_are_refused(name: str) -> None:
    with pytest.raises(BundleError):
        check_name(name)


@pytest.mark.parametrize("name", ["a", ".a", "...", "a b", "a\nb", "ü/ö", "x" * 255, "a\\b", "-"])
def test_names_that_are_fine(name: str) -> None:
    check_name(name)


@pytest.mark.parametrize(
    "entries",
    [
        [file("a"), file("a")],
        [file("a"), file("a/b")],
        [link("a", "b"), file("a/b")],
        [file("a", "nothash")],
        [file("a", HASH, -1)],
        [link("a", "..")],
        [link("a", "/etc")],
        [link("a", "")],
        [link("a/b", "../../c")],
        [link("a/b/d", "../.."), link("a/b/c/x", "../d/..")],
        [link("a", "b"), link("b", "../c")],
    ],
)
def test_trees_that_are_refused(entries: list[Entry]) -> None:
    with pytest.raises(BundleError):
        check_tree(entries)


def test_links_that_are_fine() -> None:
    check_tree(
        [link("a", "b"), link("b", "a"), link("c/d", "../a"), link("e", "."), link("f", "gone/there"), file("c/x")]
    )


def test_empty_is_a_tree_without_entries() -> None:
    assert CodeSnapshot.empty().hash == tree_hash(())
    assert CodeSnapshot.empty().entries == ()


names = st.sampled_from(["a", "b", "a/b", "a/c", "a/d/e", "d"])
parts = st.lists(st.sampled_from(["..", "..", "a", "b", "c", "d", "e", "."]), min_size=1, max_size=5)


@settings(deadline=None)
@given(st.dictionaries(names, parts.map("/".join), max_size=4))
def test_a_tree_that_passes_leads_nowhere_outside(
    tmp_path_factory: pytest.TempPathFactory, links: dict[str, str]
) -> None:
    """The pure rule against the real file system."""
    try:
        check_tree([link(path, target) for path, target in links.items()])
    except BundleError:
        return
    root = Path(tmp_path_factory.mktemp("links"), "root")
    for path, target in links.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        os.symlink(target, root / path)
    for path in links:
        try:
            (root / path).stat()
        except OSError as error:
            if error.errno == errno.ELOOP:
                continue  # a loop leads nowhere, whatever realpath makes of it
        real = os.path.realpath(root / path)
        assert (real + "/").startswith(f"{root}/"), (path, links)


def test_lexical_and_real_differ() -> None:
    links = {"a/b/d": "../..", "a/b/c/x": "../d/.."}
    assert not leaves_lexically("a/b/c/x", links["a/b/c/x"])
    assert leaves_tree("a/b/c/x", links)

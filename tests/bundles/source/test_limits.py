from __future__ import annotations

import pytest

from longboat.bundles.manifests import TreeLimits
from longboat.bundles.source.limits import check, heaviest, size_text
from longboat.core.errors import BundleError

GB = 10**9


def test_the_message_names_the_folder() -> None:
    sizes = {"data/a.bin": 7 * GB, "data/b.bin": 5 * GB, "train.py": 1000}
    with pytest.raises(BundleError) as caught:
        check(sizes, TreeLimits())
    assert caught.value.message == "the code is 12 GB, at most 2.1 GB travel: 12 GB in data/"
    assert caught.value.hint == "12 GB in data/: add it to .longboatignore or mount it"


def test_too_many_files_are_told_as_files() -> None:
    sizes = {f"data/raw/{n}": 1 for n in range(90)} | {f"src/{n}": 1 for n in range(20)}
    with pytest.raises(BundleError) as caught:
        check(sizes, TreeLimits(max_files=100))
    assert caught.value.message == "the code has more than 100 files: 90 files in data/raw/, 20 files in src/"


def test_just_within_the_limits() -> None:
    check({"a": 10, "b": 0}, TreeLimits(max_bytes=10, max_files=2))
    check({}, TreeLimits(max_bytes=0, max_files=0))


@pytest.mark.parametrize(
    ("weights", "named"),
    [
        ({"a/b/c/x": 10, "a/b/c/y": 10}, [("a/b/c/", 20)]),
        ({"a/b/x": 10, "a/c/x": 10}, [("a/", 20)]),
        ({"a/b/x": 90, "a/c": 10}, [("a/b/", 90)]),
        ({"big": 90, "a/c": 10}, [("big", 90), ("a/", 10)]),
        ({"a/1": 30, "b/1": 30, "c/1": 30, "d/1": 10}, [("a/", 30), ("b/", 30), ("c/", 30)]),
        ({str(n): 1 for n in range(50)}, [("0", 1)]),
    ],
)
def test_where_the_weight_is(weights: dict[str, int], named: list[tuple[str, int]]) -> None:
    assert heaviest(weights) == named


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 bytes"),
        (999, "999 bytes"),
        (1000, "1.0 kB"),
        (12 * GB, "12 GB"),
        (2_400_000, "2.4 MB"),
        (10**16, "10000 TB"),
    ],
)
def test_sizes_in_words(size: int, text: str) -> None:
    assert size_text(size) == text

"""Which contents share a pack: it follows from their hashes, so that a change moves little."""

from __future__ import annotations

import hashlib

from hypothesis import given
from hypothesis import strategies as st

from longboat.engines.kubernetes.submit.code.objects import LIMIT, folder_of, plan

Sizes = dict[str, int]


def digest(number: int) -> str:
    return hashlib.sha256(str(number).encode()).hexdigest()


trees = st.dictionaries(st.integers(0, 10_000).map(digest), st.integers(0, LIMIT + LIMIT // 4), max_size=60)


@given(trees)
def test_every_content_is_in_one_pack_that_is_not_too_large(sizes: Sizes) -> None:
    packs = plan(sizes)
    assert sorted(name for group in packs.values() for name in group) == sorted(sizes)
    for group in packs.values():
        assert len(group) == 1 or sum(sizes[name] for name in group) <= LIMIT


@given(trees, st.integers(20_000, 30_000).map(digest), st.integers(0, LIMIT // 10), st.data())
def test_a_change_of_one_file_moves_only_its_neighbourhood(
    sizes: Sizes, new: str, size: int, data: st.DataObject
) -> None:
    before = plan(sizes)
    changed = {**sizes, new: size}
    if sizes:
        del changed[data.draw(st.sampled_from(sorted(sizes)))]
    fresh = {name: group for name, group in plan(changed).items() if name not in before}
    # Where it came, a pack may have been split in a few; where it left, a few may have become one.
    assert (
        sum(changed[name] for group in fresh.values() for name in group if changed[name] <= LIMIT) <= 2 * LIMIT + size
    )


def test_the_order_does_not_matter_and_equal_contents_have_equal_names() -> None:
    sizes = {digest(number): 70_000 for number in range(100)}
    assert plan(sizes) == plan(dict(reversed(sizes.items())))
    assert len(plan(sizes)) > 6
    assert plan({}) == {}


def test_where_the_objects_are() -> None:
    assert folder_of("s3://bucket") == "s3://bucket/longboat/code/"
    assert folder_of("s3://bucket/team/") == "s3://bucket/team/longboat/code/"

from __future__ import annotations

import gzip
import hashlib
import io
import os
import random
import tarfile
from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longboat.engines.kubernetes.submit.code import packs
from longboat.engines.kubernetes.submit.code.packs import (
    LIMIT,
    MOST_PACKS,
    PART,
    NewPack,
    Pack,
    PackPlan,
    TooLarge,
    plan_packs,
)


class Contents:
    """Objects by their hash, and the packs of a namespace."""

    def __init__(self, *contents: bytes) -> None:
        self.objects: dict[str, bytes] = {}
        self.there: dict[str, NewPack] = {}
        self.read_hashes: list[str] = []
        for content in contents:
            self.add(content)

    def add(self, content: bytes) -> str:
        hash = hashlib.sha256(content).hexdigest()
        self.objects[hash] = content
        return hash

    def read(self, hash: str) -> bytes:
        self.read_hashes.append(hash)
        return self.objects[hash]

    @property
    def existing(self) -> list[Pack]:
        found = [packs.index_of(pack.name, pack.index) for pack in self.there.values()]
        return [pack for pack in found if pack is not None]

    def plan(self) -> PackPlan:
        self.read_hashes.clear()
        sizes = {hash: len(content) for hash, content in self.objects.items()}
        plan = plan_packs(sizes, self.existing, self.read)
        assert len(plan.names) <= MOST_PACKS
        assert len(set(plan.names)) == len(plan.names)
        assert all(len(pack.data) <= LIMIT for pack in plan.new)
        self.there.update({pack.name: pack for pack in plan.new})
        assert unpack(self.there[name].data for name in plan.names).items() >= self.objects.items()
        return plan


def unpack(data: Iterable[bytes]) -> dict[str, bytes]:
    """As the launcher does: members in order, parts joined, what comes twice skipped; checked."""
    found: dict[str, bytes] = {}
    counts: dict[str, int] = {}
    for pack in data:
        with tarfile.open(fileobj=io.BytesIO(gzip.decompress(pack))) as tar:
            for member in tar:
                name, _, part = member.name.partition(".")
                if int(part or 0) != counts.get(name, 0):
                    continue
                counts[name] = counts.get(name, 0) + 1
                file = tar.extractfile(member)
                assert file is not None
                found[name] = found.get(name, b"") + file.read()
    assert all(hashlib.sha256(content).hexdigest() == name for name, content in found.items())
    return found


def noise(size: int, seed: int = 0) -> bytes:
    return random.Random(seed).randbytes(size)


def test_small_code_is_one_pack() -> None:
    contents = Contents(b"", b"print(1)\n", b"x" * 5000)
    plan = contents.plan()
    assert len(plan.new) == len(plan.names) == 1
    assert plan.names[0].startswith("longboat-code-")
    assert len(plan.names[0]) == len("longboat-code-") + 16


def test_the_same_code_again_moves_nothing() -> None:
    contents = Contents(*(b"file %d" % number for number in range(100)))
    first = contents.plan()
    second = contents.plan()
    assert second.names == first.names
    assert second.new == () and contents.read_hashes == []
    assert set(second.needed[first.names[0]]) == set(contents.objects)


def test_after_a_change_of_one_file_only_that_file_moves() -> None:
    contents = Contents(*(b"file %d" % number * 100 for number in range(1000)))
    first = contents.plan()
    contents.objects.pop(next(iter(contents.objects)))
    changed = contents.add(b"changed")
    second = contents.plan()
    assert contents.read_hashes == [changed]
    assert second.names[:-1] == first.names
    assert set(unpack([second.new[0].data])) == {changed}


def test_the_same_objects_give_the_same_bytes() -> None:
    contents = [os.urandom(1000) for _ in range(50)] + [noise(3_000_000)]
    assert Contents(*contents).plan() == Contents(*contents).plan()


def test_many_small_changes_are_packed_together_before_there_are_too_many_packs() -> None:
    contents = Contents(*(b"file %d" % number for number in range(200)))
    counts = []
    for number in range(40):
        contents.objects.pop(next(iter(contents.objects)))
        contents.add(b"change %d" % number)
        counts.append(len(contents.plan().names))
    assert max(counts) == MOST_PACKS
    assert any(after < before for before, after in zip(counts, counts[1:]))


@pytest.mark.parametrize(("size", "count"), [(PART, 1), (PART + 1, 2), (2 * PART, 3), (5_000_000, 7)])
def test_large_files_that_cannot_be_compressed_are_split(size: int, count: int) -> None:
    contents = Contents(noise(size), b"small")
    plan = contents.plan()
    assert len(plan.names) == count
    assert contents.plan().new == ()


def test_a_large_file_that_is_easily_compressed_takes_one_pack() -> None:
    assert len(Contents(b"0123456789" * 2_000_000).plan().names) == 1


def test_packs_of_parts_keep_their_order_whoever_made_them() -> None:
    contents = Contents(noise(4 * PART, 1), noise(3 * PART, 2), b"x")
    contents.plan()
    shuffled = list(contents.there.items())
    random.Random(3).shuffle(shuffled)
    contents.there = dict(shuffled)
    assert contents.plan().new == ()


def test_a_part_that_is_gone_brings_all_parts_again() -> None:
    contents = Contents(noise(4 * PART, 1))
    plan = contents.plan()
    del contents.there[plan.names[1]]
    assert len(contents.plan().new) == 4


@pytest.mark.parametrize("contents", [[noise(15 << 20)], [noise(PART, seed) for seed in range(MOST_PACKS + 1)]])
def test_what_does_not_fit_is_refused_with_the_numbers_and_the_choices(contents: list[bytes]) -> None:
    with pytest.raises(TooLarge, match="more than 16 packs of 900Ki") as refused:
        Contents(*contents).plan()
    assert refused.value.hint is not None
    for choice in ("kubernetes.storage.claim", ".longboatignore", "volume"):
        assert choice in refused.value.hint


def test_sixteen_full_packs_fit() -> None:
    assert len(Contents(*(noise(PART, seed) for seed in range(MOST_PACKS))).plan().names) == MOST_PACKS


def test_very_many_objects_are_spread() -> None:
    contents = Contents(*(b"%d" % number for number in range(packs.MOST_OBJECTS + 1)))
    plan = contents.plan()
    assert len(plan.names) == 2
    assert all(len(pack.index) < 200_000 for pack in plan.new)


@given(
    rounds=st.lists(
        st.lists(st.tuples(st.integers(0, 2_500_000), st.integers(0, 5), st.booleans()), max_size=4),
        min_size=1,
        max_size=4,
    )
)
@settings(max_examples=25, deadline=None)
def test_whatever_is_there_all_objects_arrive(rounds: list[list[tuple[int, int, bool]]]) -> None:
    contents = Contents()
    for changes in rounds:
        for size, seed, is_noise in changes:
            contents.add(noise(size, seed) if is_noise else bytes([seed]) * size)
        contents.plan()


def test_a_pack_that_vanished_is_made_again_with_what_is_needed() -> None:
    contents = Contents(*(b"file %d" % number for number in range(100)))
    contents.plan()
    wanted = list(contents.objects)[:3]
    contents.objects = {hash: contents.objects[hash] for hash in wanted}
    again = contents.plan()
    made = packs.rebuild(again.names[0], again.needed[again.names[0]], contents.read)
    assert made is not None and made.name == again.names[0]
    assert set(unpack([made.data])) == set(wanted)


def test_a_pack_of_parts_that_vanished_is_made_again() -> None:
    contents = Contents(noise(4 * PART, 1))
    first = contents.plan()
    again = contents.plan()
    for pack in first.new:
        assert packs.rebuild(pack.name, again.needed[pack.name], contents.read) == pack


@pytest.mark.parametrize("index", ["", "objects:%%%", "parts:x", "parts:x:1:y", "other:1"])
def test_an_index_of_something_else_is_no_pack(index: str) -> None:
    assert packs.index_of("x", index) is None

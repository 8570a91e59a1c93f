"""The code of a run in packs: which packs of the namespace serve again, and what goes into new ones. Pure.

A pack is a gzip tar of objects named by their sha256, at most 900 KiB, kept in a Secret named after what it holds. A
run uses at most 16 packs (14 MiB); what it needs and no pack has goes into new ones, so that after a change of one file
only that file travels. Objects above `PART` are split; their parts have packs of their own, so that the order of the
parts is the order of these packs. The same objects give the same packs.
"""

from __future__ import annotations

import base64
import hashlib
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from longboat.core.errors import Refused
from longboat.core.jobs import Value
from longboat.core.resources import show_quantity

LIMIT = 900 << 10  # bytes of a pack: a Secret holds 1 MiB, its annotations and labels included
PART = 890 << 10
"""Bytes of an object that fit into one pack even when they cannot be compressed."""

MOST_PACKS = 16  # a pod mounts each; beyond 14 MiB code travels by the storage, not through etcd
MOST_OBJECTS = 8000
"""Objects in one pack: the list of them is an annotation, and annotations have 256 KiB together."""

PREFIX = "longboat-code-"
_LEVEL = 6  # zlib's own default: higher ones take longer than they save on the way
_SHORT = 12
_BLOCK = 512
END = b"\0" * (2 * _BLOCK)
"""Closes a tar."""
_HELD_BACK = 300 << 10  # what a compressor may keep to itself, generously

Read = Callable[[str], bytes]


class TooLarge(Refused):
    """The code does not fit into packs."""


class Pack(Value, frozen=True):
    """A pack that exists, by what its index says."""

    name: str
    objects: frozenset[str] = frozenset()  # beginnings of the hashes of whole objects
    split: str | None = None  # hash of the object whose parts it holds
    parts: range = range(0)


class NewPack(Value, frozen=True):
    name: str
    index: str
    data: bytes


class PackPlan(Value, frozen=True):
    names: tuple[str, ...]  # in the order of the gang file
    new: tuple[NewPack, ...]
    needed: dict[str, tuple[str, ...]]  # pack that is used again -> the objects that this run needs of it


def plan_packs(sizes: Mapping[str, int], existing: Iterable[Pack], read: Read) -> PackPlan:
    """Packs that together hold all objects. `sizes`: hash -> bytes, in a fixed order. Raises TooLarge."""
    small = [hash for hash, size in sizes.items() if size <= PART]
    large = {hash: _part_count(size) for hash, size in sizes.items() if size > PART}
    there = sorted(existing, key=lambda pack: pack.name)
    big_used, big_new = _plan_large(large, there, read)
    used = _choose(small, [pack for pack in there if pack.split is None])
    while True:
        room = MOST_PACKS - len(big_used) - len(big_new) - len(used)
        new = _pack_small(_missing(small, used), read, most=max(room, 0))
        if new is not None:
            break
        if not used:
            raise too_large(sizes, len(big_used) + len(big_new))
        used = dict(list(used.items())[: len(used) // 2])  # the fullest stay, the others are packed together anew
    names = [*used, *(pack.name for pack in new)]
    needed = {**used, **{name: (hash,) for name, hash in big_used}}
    ordered = sorted([*big_used, *((pack.name, pack.index) for pack in big_new)], key=lambda item: _order(item, there))
    return PackPlan(names=(*names, *(name for name, _ in ordered)), new=(*new, *big_new), needed=needed)


def too_large(sizes: Mapping[str, int], least: int) -> TooLarge:
    total, most = sum(sizes.values()), max(sizes.values(), default=0)
    return TooLarge(
        f"the code ({show_quantity(total)}, its largest file {show_quantity(most)}) takes more than {MOST_PACKS} packs"
        f" of {show_quantity(LIMIT)}, which is what travels in Secrets"
        + (f" ({least} for large files)" if least else ""),
        hint="name a storage (`longboat config set kubernetes.storage.claim NAME`, `kubernetes.storage.url"
        " s3://BUCKET/NAME`, or `checkpoints.to` in a volume) and it travels there; or leave large files out"
        " (.longboatignore), as a volume or `data`",
    )


def index_of(name: str, index: str) -> Pack | None:
    """The pack that a Secret's annotation describes; None when there is no making sense of it."""
    kind, _, rest = index.partition(":")
    try:
        if kind == "objects":
            raw = base64.b64decode(rest, validate=True)
            hashes = {raw[at : at + _SHORT].hex() for at in range(0, len(raw), _SHORT)}
            return Pack(name=name, objects=frozenset(hashes))
        if kind == "parts":
            hash, first, last = rest.split(":")
            return Pack(name=name, split=hash, parts=range(int(first), int(last) + 1))
    except ValueError:
        pass
    return None


def rebuild(pack: str, objects: Sequence[str], read: Read) -> NewPack | None:
    """A pack that vanished, under its name, with what this run needs of it; None when it cannot be made again."""
    data = read(objects[0]) if len(objects) == 1 else b""
    if len(data) > PART:
        return next((each for each in _pack_parts(objects[0], data) if each.name == pack), None)
    made = _pack_small(objects, read, most=1)
    return msgspec.structs.replace(made[0], name=pack) if made else None


def holds(pack: Pack, objects: Iterable[str]) -> bool:
    return all(_short(hash) in pack.objects for hash in objects)


def _short(hash: str) -> str:
    return hash[: 2 * _SHORT]


def _part_count(size: int) -> int:
    return -(-size // PART)


def _choose(needed: Sequence[str], existing: Sequence[Pack]) -> dict[str, tuple[str, ...]]:
    """Greedily the pack that has most of what is still missing; fullest first."""
    left = {_short(hash): hash for hash in needed}
    chosen: dict[str, tuple[str, ...]] = {}
    candidates = list(existing)
    while left and candidates and len(chosen) < MOST_PACKS:
        best = max(candidates, key=lambda pack: len(pack.objects & left.keys()))
        shared = best.objects & left.keys()
        if not shared:
            break
        chosen[best.name] = tuple(hash for short, hash in left.items() if short in shared)
        candidates.remove(best)
        left = {short: hash for short, hash in left.items() if short not in shared}
    return chosen


def _missing(needed: Sequence[str], used: Mapping[str, Sequence[str]]) -> list[str]:
    there = {hash for hashes in used.values() for hash in hashes}
    return [hash for hash in needed if hash not in there]


def _pack_small(objects: Sequence[str], read: Read, *, most: int) -> list[NewPack] | None:
    """New packs for these objects in this order; None when they do not fit into `most`."""
    made: list[NewPack] = []
    stream, held = _Stream(), list[str]()
    for hash in objects:
        data = read(hash)
        if held and (len(held) >= MOST_OBJECTS or not stream.has_room(data)):
            made.append(_objects_pack(stream, held))
            stream, held = _Stream(), []
        if len(made) + 1 > most:
            return None
        stream.add(hash, data)
        held.append(hash)
    if held:
        made.append(_objects_pack(stream, held))
    return made


def _objects_pack(stream: _Stream, held: Sequence[str]) -> NewPack:
    index = "objects:" + base64.b64encode(b"".join(bytes.fromhex(_short(hash)) for hash in held)).decode()
    return NewPack(name=_name(held), index=index, data=stream.finish())


def _name(members: Iterable[str]) -> str:
    """After what is in it, not after its bytes: compressors differ."""
    return PREFIX + hashlib.sha256("\0".join(members).encode()).hexdigest()[:16]


def _plan_large(
    large: Mapping[str, int], existing: Sequence[Pack], read: Read
) -> tuple[list[tuple[str, str]], list[NewPack]]:
    """For every object in parts: packs that exist when they have all of them, else new ones."""
    used: list[tuple[str, str]] = []
    new: list[NewPack] = []
    for hash, count in large.items():
        there = [pack for pack in existing if pack.split == hash]
        if set(range(count)) <= {part for pack in there for part in pack.parts}:
            used += [(pack.name, hash) for pack in there]
        else:
            new += _pack_parts(hash, read(hash))
        if len(used) + len(new) > MOST_PACKS:
            raise too_large({hash: count * PART for hash, count in large.items()}, len(used) + len(new))
    return used, new


def _pack_parts(hash: str, data: bytes) -> list[NewPack]:
    parts = [data[at : at + PART] for at in range(0, len(data), PART)]
    made: list[NewPack] = []
    stream, first = _Stream(), 0
    for number, part in enumerate(parts):
        if number > first and not stream.has_room(part):
            made.append(_parts_pack(stream, hash, first, number - 1))
            stream, first = _Stream(), number
        stream.add(f"{hash}.{number}", part)
    made.append(_parts_pack(stream, hash, first, len(parts) - 1))
    return made


def _parts_pack(stream: _Stream, hash: str, first: int, last: int) -> NewPack:
    index = f"parts:{hash}:{first}:{last}"
    return NewPack(name=_name([index]), index=index, data=stream.finish())


def _order(item: tuple[str, str], existing: Sequence[Pack]) -> tuple[str, int]:
    """Packs of one object by their first part."""
    name, index = item
    pack = next((pack for pack in existing if pack.name == name), None) or index_of(name, index)
    return ("", 0) if pack is None else (pack.split or "", pack.parts.start)


class _Stream:
    """A gzip tar in the making, whose size is known before it is finished."""

    def __init__(self) -> None:
        self._compressor = zlib.compressobj(_LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS)
        self._out: list[bytes] = []
        self._size = 0
        self._crc = 0
        self._length = 0

    def add(self, name: str, data: bytes) -> None:
        self._feed(member(name, data))

    def has_room(self, data: bytes) -> bool:
        """Whether the pack would still be small enough with these bytes in it."""
        spare = LIMIT - self._size - 4 * _BLOCK
        if len(data) + 2 * _BLOCK + _HELD_BACK <= spare:
            return True
        added = member("0" * 70, data)
        trial = self._compressor.copy()
        return len(trial.compress(added)) + len(trial.flush()) <= spare

    def finish(self) -> bytes:
        self._feed(END)
        self._out.append(self._compressor.flush())
        header = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"  # no name, no time
        trailer = self._crc.to_bytes(4, "little") + (self._length & 0xFFFFFFFF).to_bytes(4, "little")
        return header + b"".join(self._out) + trailer

    def _feed(self, data: bytes) -> None:
        self._crc = zlib.crc32(data, self._crc)
        self._length += len(data)
        self._out.append(self._compressor.compress(data))
        self._size += len(self._out[-1])


def member(name: str, data: bytes) -> bytes:
    """An object (or a part of one) as a tar has it."""
    import tarfile

    header = tarfile.TarInfo(name)
    header.size = len(data)
    header.mode = 0o644
    return header.tobuf(tarfile.USTAR_FORMAT) + data + b"\0" * (-len(data) % _BLOCK)

"""Reader of TensorBoard event files, only their scalars: TFRecord framing and the few protobuf fields that matter.

Standard library only and Python >= 3.8: the launcher carries this file. A file may still be growing, may be cut, and
may hold anything: what is not in order is passed over, and nothing larger than a scalar's record is read into memory.
"""

from __future__ import annotations

import os
import struct
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

MOST_RECORD = 64 << 10
"""Bytes of a record that may hold scalars; images, graphs and histograms are larger, and are not read."""
BLOCK = 256 << 10
MOST_FIELDS = 4096
"""Of one message."""
_HEAD = 12  # length, and its checksum
_TAIL = 4
_MASK_DELTA = 0xA282EAD8
_FLOAT, _DOUBLE, _HALF = 1, 2, 19  # of TensorFlow's DataType
_INTS = (3, 4, 5, 6, 9, 17, 22, 23)
_STEP_MAX = 1 << 62  # beyond any step; damaged files hold wild numbers

_table: list[int] = []


def crc32c(data: bytes) -> int:
    """The checksum of Castagnoli, bit by bit from a table: scalars' records are short."""
    if not _table:
        for number in range(256):
            for _ in range(8):
                number = (number >> 1) ^ 0x82F63B78 if number & 1 else number >> 1
            _table.append(number)
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _table[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


def masked(data: bytes) -> int:
    """The checksum as TFRecord files have it."""
    crc = crc32c(data)
    return (((crc >> 15) | (crc << 17)) + _MASK_DELTA) & 0xFFFFFFFF


class EventFile:
    """A file that is read from where the last reading ended."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.offset = 0
        self.stride = 1  # about one of so many records is looked at, where they come faster than they can be read
        self.whole_tail = 0  # bytes at the end of the file of which every record is looked at
        self.until = float("inf")  # of `time.thread_time`: what comes after a record then is left for the next reading
        self.is_behind = False  # something was left
        self._count = 0
        self.is_damaged = False  # a length that is not what its checksum says: the rest cannot be found

    def records(self) -> Iterator[tuple[bytes, int]]:
        """Whole records that are new and small enough for scalars, and their checksums. Raises OSError."""
        self.is_behind = False
        with open(self.path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            while not self.is_damaged and not self.is_behind and size - self.offset >= _HEAD + _TAIL:
                file.seek(self.offset)
                block = file.read(min(BLOCK, size - self.offset))
                start = self.offset
                yield from self._split(block, size)
                if self.offset == start:
                    return  # the last record is not whole yet
                self.is_behind = self.is_behind or time.thread_time() > self.until

    def _split(self, block: bytes, size: int) -> Iterator[tuple[bytes, int]]:
        at = 0
        while len(block) - at >= _HEAD:
            if at and time.thread_time() > self.until:
                self.is_behind = True
                return
            length = _length_at(block, at)
            if length is None:
                self.is_damaged = True
                return
            whole = _HEAD + length + _TAIL
            if whole > size - self.offset:
                return
            if length > MOST_RECORD:
                self.offset += whole
                return  # the next block begins behind it
            if at + whole > len(block):
                return
            data = block[at + _HEAD : at + _HEAD + length]
            at += whole
            self.offset += whole
            self._count += 1
            stride = self.stride if size - self.offset > self.whole_tail else 1
            if (self._count * 2654435761 >> 16) % stride == 0:  # not every n-th: tags come in turns
                yield data, struct.unpack_from("<I", block, at - _TAIL)[0]

    def skip_to_tail(self) -> None:
        """Go on with the first record in the last `whole_tail` bytes. Raises OSError.

        Its beginning is told by the checksum of its length, which few other bytes have, and by one that follows it.
        """
        with open(self.path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            start = size - self.whole_tail
            if start <= self.offset:
                return
            file.seek(start)
            block = file.read(2 * MOST_RECORD)
        for at in range(min(len(block), MOST_RECORD)):
            length = _length_at(block, at)
            following = at + _HEAD + (length or 0) + _TAIL
            if length is not None and (start + following == size or _length_at(block, following) is not None):
                self.offset, self.is_damaged = start + at, False
                return

    def scalars(self) -> Iterator[tuple[float, int, dict[str, float]]]:
        """Time, step and values by tag of each new record that has scalars. Raises OSError."""
        for record, checksum in self.records():
            event = parse_event(record)  # first: a checksum takes far longer, and most large records have no scalars
            if event is not None and checksum == masked(record):
                yield event


def _length_at(block: bytes, at: int) -> int | None:
    """The length of the record that begins there; None where none does."""
    head = block[at : at + 8]
    if at + _HEAD > len(block) or struct.unpack_from("<I", block, at + 8)[0] != masked(head):
        return None
    return int(struct.unpack("<Q", head)[0])


def parse_event(data: bytes) -> tuple[float, int, dict[str, float]] | None:
    """Time, step and scalars of an Event message; None where it has none or is not in order. Pure."""
    wall_time, step, scalars = 0.0, 0, {}
    try:
        for number, wire, value in _fields(data):
            if number == 1 and wire == 1:
                wall_time = struct.unpack("<d", value)[0]
            elif number == 2 and wire == 0:
                step = value
            elif number == 5 and wire == 2:
                scalars.update(_summary(value))
    except (ValueError, struct.error):
        return None
    is_sane = scalars and 0 <= step < _STEP_MAX and 0 <= wall_time < 1e11
    return (wall_time, step, scalars) if is_sane else None


def _summary(data: bytes) -> dict[str, float]:
    scalars = {}
    for number, wire, value in _fields(data):
        if number == 1 and wire == 2:
            tag, scalar = _value(value)
            if tag and scalar is not None:
                scalars[tag] = scalar
    return scalars


def _value(data: bytes) -> tuple[str, float | None]:
    """Tag and number of a Summary.Value: a plain number, or a tensor of one element, as TensorFlow 2 writes it."""
    tag, scalar, plugin = "", None, b""
    for number, wire, value in _fields(data):
        if number == 1 and wire == 2:
            tag = value.decode("utf-8", "replace")
        elif number == 2 and wire == 5:
            scalar = _single(struct.unpack("<f", value)[0])
        elif number == 8 and wire == 2:
            scalar = _tensor(value)
        elif number == 9 and wire == 2:
            plugin = _plugin(value)
    return tag, scalar if plugin in (b"", b"scalars") else None


def _plugin(data: bytes) -> bytes:
    """The name of the plugin that a value is for."""
    for number, wire, value in _fields(data):
        if number == 1 and wire == 2:
            for inner, inner_wire, name in _fields(value):
                if inner == 1 and inner_wire == 2:
                    return bytes(name)
    return b""


def _tensor(data: bytes) -> float | None:
    """The number in a tensor of one element; None for any other tensor."""
    kind, content = 0, b""
    numbers: list[float] = []
    for number, wire, value in _fields(data):
        if number == 1 and wire == 0:
            kind = value
        elif number == 4 and wire == 2:
            content = value
        elif number in (5, 6) and wire in (1, 2, 5):
            size = 4 if number == 5 else 8
            if len(value) % size == 0 and len(value) <= 2 * size:
                numbers += struct.unpack(f"<{len(value) // size}{'f' if size == 4 else 'd'}", value)
                numbers = [_single(each) if size == 4 else each for each in numbers]
            else:
                numbers += [0.0, 0.0]  # several: no scalar
        elif number in (7, 10) and wire == 0:
            numbers.append(float(_signed(value)))
    if content:
        code = {(_FLOAT, 4): "f", (_DOUBLE, 8): "d", (_HALF, 2): "e", (9, 8): "q", (3, 4): "i"}.get(
            (kind, len(content))
        )
        if code is None:
            return None
        scalar = float(struct.unpack("<" + code, content)[0])
        return _single(scalar) if kind == _FLOAT else scalar
    return float(numbers[0]) if len(numbers) == 1 and kind in (_FLOAT, _DOUBLE, _HALF) + _INTS else None


def _single(number: float) -> float:
    """A number of single precision with the digits that it has: 0.1, not 0.10000000149."""
    return float(f"{number:.7g}")


def _signed(value: int) -> int:
    return value - (1 << 64) if value >= 1 << 63 else value


def _fields(data: bytes) -> Iterator[tuple[int, int, Any]]:
    """Number, wire type and value of each field of a message. Raises ValueError."""
    at = 0
    for _ in range(MOST_FIELDS):
        if at >= len(data):
            return
        key, at = _varint(data, at)
        wire = key & 7
        if wire == 0:
            value, at = _varint(data, at)
            yield key >> 3, wire, value
            continue
        if wire == 2:
            size, at = _varint(data, at)
        elif wire in (1, 5):
            size = 8 if wire == 1 else 4
        else:
            raise ValueError(f"a field of wire type {wire}")
        if size > len(data) - at:
            raise ValueError("a field that is cut")
        yield key >> 3, wire, data[at : at + size]
        at += size
    raise ValueError("too many fields")


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            raise ValueError("a number that is cut")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, at
    raise ValueError("a number that is too long")

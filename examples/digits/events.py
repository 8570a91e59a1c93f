"""Writes scalars to a TensorBoard event file, without TensorBoard.

The file is a TFRecord: length, masked CRC-32C of the length, data, masked CRC-32C of the data. Each record is an
`Event` in protobuf's wire format: wall_time (1), step (2), file_version (3) or summary (5) with values of tag (1) and
simple_value (2).
"""

from __future__ import annotations

import os
import socket
import struct
import time
from pathlib import Path


def crc_table() -> list[int]:
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = (byte >> 1) ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return table


CRC_TABLE = crc_table()


def masked_crc(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = CRC_TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    crc ^= 0xFFFFFFFF
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def text(field: int, data: bytes) -> bytes:
    return varint(field << 3 | 2) + varint(len(data)) + data


def scalar_event(step: int, scalars: dict[str, float]) -> bytes:
    values = [text(1, tag.encode()) + struct.pack("<Bf", 2 << 3 | 5, value) for tag, value in scalars.items()]
    summary = b"".join(text(1, value) for value in values)
    return struct.pack("<Bd", 1 << 3 | 1, time.time()) + varint(2 << 3) + varint(step) + text(5, summary)


class EventWriter:
    """One event file in a folder; each record is written whole."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        Path(folder).mkdir(parents=True, exist_ok=True)
        name = f"events.out.tfevents.{int(time.time())}.{socket.gethostname()}.{os.getpid()}"
        self.file = open(Path(folder) / name, "ab", buffering=0)
        self.write(struct.pack("<Bd", 1 << 3 | 1, time.time()) + text(3, b"brain.Event:2"))

    def scalars(self, step: int, **values: float) -> None:
        self.write(scalar_event(step, values))

    def write(self, event: bytes) -> None:
        length = struct.pack("<Q", len(event))
        self.file.write(length + struct.pack("<I", masked_crc(length)) + event + struct.pack("<I", masked_crc(event)))

    def close(self) -> None:
        self.file.close()

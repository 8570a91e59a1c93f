"""Types that several threads meet for the first time at once: msgspec alone crashes the interpreter then."""

from __future__ import annotations

import subprocess
import sys

MEET = """
import sys, threading
import msgspec
from longboat.core.guards import decoding

sys.setswitchinterval(1e-6)
DATA = b'{"x": {"a": {}, "b": [{}], "c": {"k": {}}}, "y": []}'


def new_type(number):
    inner = msgspec.defstruct(f"Inner{number}", [(f"f{each}", int | None, None) for each in range(20)])
    middle = msgspec.defstruct(f"Middle{number}", [("a", inner), ("b", list[inner]), ("c", dict[str, inner])])
    return msgspec.defstruct(f"Outer{number}", [("x", middle), ("y", tuple[middle, ...])])


def read(kind, meet):
    meet.wait()
    READ(kind)


for number in range(100):
    kind, meet = new_type(number), threading.Barrier(4)
    threads = [threading.Thread(target=read, args=(kind, meet)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
"""


def meets(read: str) -> int:
    script = MEET.replace("READ(kind)", read)
    return subprocess.run([sys.executable, "-c", script], capture_output=True, check=False).returncode


def test_json() -> None:
    assert meets("decoding.decode(DATA, kind)") == 0


def test_plain_values() -> None:
    assert meets("decoding.convert(msgspec.json.decode(DATA), kind)") == 0


def test_msgpack() -> None:
    assert meets("decoding.decode_msgpack(msgspec.msgpack.encode(msgspec.json.decode(DATA)), kind)") == 0

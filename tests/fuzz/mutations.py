"""Valid samples, spoiled: bytes that are cut, doubled, replaced or spliced, and JSON with a strange value somewhere."""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Sequence
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

EXAMPLES = int(os.environ.get("LONGBOAT_FUZZ_EXAMPLES") or (1_000_000 if os.environ.get("LONGBOAT_TEST_SOAK") else 300))
"""Of all readers together, but 40 of each at least. LONGBOAT_FUZZ_EXAMPLES is another number."""

TOKENS = (
    b"\0",
    b"\n",
    b"\r",
    b"\x1b[2J",
    b"\xff\xfe",
    b"\xef\xbb\xbf",
    b"\xed\xa0\x80",
    b": ",
    b"- ",
    b"[" * 40,
    b"{" * 40,
    b"}",
    b"]",
    b'"',
    b"\\",
    b"\\ud800",
    b"&a ",
    b"*a",
    b"<<: ",
    b"!!python/object ",
    b"9" * 400,
    b"-1",
    b"1e999",
    b".inf",
    b"NaN",
    b"null",
    b"true",
    b"~",
    b"../" * 5,
    b"/",
    b"%00",
    b"${A}",
    b"a" * 5000,
    b"\x7f" * 9,
    b"\x80" * 11,
    b"1970-01-01T00:00:00Z",
    b"\t",
)
STRANGE: tuple[Any, ...] = (
    None,
    True,
    -1,
    0,
    10**30,
    -(10**400),
    1.5e308,
    "",
    "\0",
    "a" * 5000,
    "../../etc/passwd",
    "\x1b[2J",
    "x\ny",
    "\u2028",
    [],
    {},
    [[]],
    [None],
    {"": None},
    {"a": {"a": {"a": {}}}},
    [1] * 500,
    "9" * 400,
    "1Ei",
    "-5s",
    0.1,
    "worker-0",
    "NaN",
)


def examples(share: float) -> settings:
    """So many of all examples. Function-scoped folders are fine: every example writes its file anew."""
    health = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large]
    return settings(max_examples=max(40, int(EXAMPLES * share)), deadline=None, suppress_health_check=health)


@st.composite
def spoiled(draw: st.DrawFn, samples: Sequence[bytes]) -> bytes:
    data = draw(st.sampled_from(samples))
    for _ in range(draw(st.integers(1, 5))):
        at = draw(st.integers(0, len(data)))
        until = min(len(data), at + draw(st.sampled_from((0, 0, 1, 2, 8, 60, 10_000))))
        kind = draw(st.sampled_from(("token", "bytes", "double", "splice", "bit")))
        if kind == "bit" and at < len(data):
            data = data[:at] + bytes([data[at] ^ 1 << draw(st.integers(0, 7))]) + data[at + 1 :]
            continue
        if kind == "token":
            piece = draw(st.sampled_from(TOKENS))
        elif kind == "splice":
            other = draw(st.sampled_from(samples))
            start = draw(st.integers(0, len(other)))
            piece = other[start : start + 40]
        else:
            piece = data[at:until] * 2 if kind == "double" else draw(st.binary(max_size=6))
        data = data[:at] + piece + data[until:]
    return data


def places(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The way to every value inside."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [at, *(place for key, part in inner for place in places(part, (*at, key)))]


@st.composite
def strange(draw: st.DrawFn, samples: Sequence[Any]) -> Any:
    """A JSON value of the samples with one to three of its parts replaced, removed or given another name."""
    value = copy.deepcopy(draw(st.sampled_from(samples)))
    for _ in range(draw(st.integers(1, 3))):
        ways = [way for way in places(value) if way]
        if not ways:
            break
        *path, last = draw(st.sampled_from(ways))
        holder = value
        for key in path:
            holder = holder[key]
        kind = draw(st.sampled_from(("replace", "replace", "remove", "rename")))
        if kind == "remove":
            del holder[last]
        elif kind == "rename" and isinstance(holder, dict):
            holder[draw(st.sampled_from(("x", "", "name", "format", "kind")))] = holder.pop(last)
        else:
            holder[last] = copy.deepcopy(draw(st.sampled_from(STRANGE)))
    return value


def as_json(value: Any) -> bytes:
    return json.dumps(value).encode()

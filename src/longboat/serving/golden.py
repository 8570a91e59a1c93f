"""Golden cases: requests with the answers that a server of a checkpoint must give. Pure.

`longboat.golden` saves them as `golden.json` in the checkpoint. Standard library only and Python >= 3.8: this file also
travels into pods, inside the launcher.
"""

from __future__ import annotations

import json
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

FILE = "golden.json"
MOST_BYTES = 16 << 20
"""A file larger than this is not meant as a few cases, and is not read into memory."""
MOST_CASES = 1000
"""Each is one request at every start of a replica."""


class GoldenCases:
    """The cases of one checkpoint."""

    def __init__(self, path: str, tolerance: float, cases: list[tuple[Any, Any]]) -> None:
        self.path = path
        self.tolerance = tolerance
        self.cases = cases


class DamagedCases(Exception):
    """The file cannot be used; the message says why."""


def read_cases(folder: str) -> GoldenCases | None:
    """The cases of a checkpoint; None where it has none. Raises DamagedCases."""
    try:
        with open(os.path.join(folder, FILE), "rb") as file:
            data = file.read(MOST_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise DamagedCases(f"{FILE} cannot be read: {error.strerror}") from None
    if len(data) > MOST_BYTES:
        raise DamagedCases(f"{FILE} is larger than {MOST_BYTES} bytes")
    return parse_cases(data)


def parse_cases(data: bytes) -> GoldenCases:
    try:
        fields = json.loads(data.decode("utf-8"))
        path, tolerance = fields["path"], float(fields["tolerance"])
        cases = [(case["input"], case["output"]) for case in fields["cases"]]
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
        raise DamagedCases(f"{FILE} is damaged: {error}") from None
    is_path = isinstance(path, str) and path.startswith("/") and path.isprintable() and " " not in path
    if not is_path or not path.isascii() or not tolerance >= 0 or len(cases) > MOST_CASES:
        raise DamagedCases(f"{FILE} is damaged: its path, tolerance or number of cases cannot be")
    return GoldenCases(path, tolerance, cases)


def difference(expected: Any, answer: Any, tolerance: float, at: str = "answer") -> str | None:
    """The first place where an answer is not the expected one; None where it agrees.

    Numbers may differ by `tolerance`, relative to those above 1; a mapping may have more entries than expected.
    """
    if isinstance(expected, dict):
        if not isinstance(answer, dict):
            return _differs(at, expected, answer)
        for key, value in expected.items():
            if key not in answer:
                return f"{at} has no {_shown(key)}"
            problem = difference(value, answer[key], tolerance, f"{at}.{key}")
            if problem:
                return problem
        return None
    if isinstance(expected, list):
        if not isinstance(answer, list):
            return _differs(at, expected, answer)
        if len(answer) != len(expected):
            return f"{at} has {len(answer)} items, expected {len(expected)}"
        for index, value in enumerate(expected):
            problem = difference(value, answer[index], tolerance, f"{at}[{index}]")
            if problem:
                return problem
        return None
    return None if _is_equal(expected, answer, tolerance) else _differs(at, expected, answer, tolerance)


def _is_equal(expected: Any, answer: Any, tolerance: float) -> bool:
    if _is_number(expected) and _is_number(answer):
        try:
            return bool(expected == answer or abs(answer - expected) <= tolerance * max(1.0, abs(expected)))
        except OverflowError:  # an integer that no float can hold, and a float
            return False
    return type(expected) is type(answer) and bool(expected == answer)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _differs(at: str, expected: Any, answer: Any, tolerance: float | None = None) -> str:
    text = f"{at} is {_shown(answer)}, expected {_shown(expected)}"
    if tolerance is not None and _is_number(expected) and _is_number(answer):
        try:
            text += f": differs by {abs(answer - expected):.3g}, tolerance {tolerance:.3g}"
        except OverflowError:
            text += ": too large to compare"
    return text


def _shown(value: Any) -> str:
    try:
        text = json.dumps(value)
    except (ValueError, RecursionError):  # more digits than Python prints
        return "a value too large to show"
    return text if len(text) <= 80 else text[:77] + "..."

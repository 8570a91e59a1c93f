"""The simple commands inside a command. What is made of them: test_frameworks."""

from __future__ import annotations

import pytest

from longboat.core.commands import python_module, simple_commands, with_arguments, word_name
from longboat.core.jobs import Command

ROWS: dict[str, tuple[Command, list[tuple[str, ...]]]] = {
    "one": ("python train.py", [("python", "train.py")]),
    "a list is taken as it is": (("python", "a b.py", ";"), [("python", "a b.py", ";")]),
    "two": ("cd x && python t.py", [("cd", "x"), ("python", "t.py")]),
    "a pipe": ("a | b", [("a",), ("b",)]),
    "quotes": ("python 'a b.py' \"c d\"", [("python", "a b.py", "c d")]),
    "wrappers in wrappers": ("A=1 exec env -u B C=2 nice -n 5 uv run -- a b", [("a", "b")]),
    "a shell in a shell": (("sh", "-c", "exec bash -c 'a; b'"), [("a",), ("b",)]),
    "a script of a shell": ("bash -e run.sh x", [("bash", "-e", "run.sh", "x")]),
    "comments": ("a # b\n# c\nd#e", [("a",), ("d#e",)]),
    "a wrapper's verb is another one": ("uv sync", [("uv", "sync")]),
    "only assignments": ("A=1 B=2", []),
    "an open quote": ("a 'b c", [("a", "'b", "c")]),
    "nothing": ("  ", []),
}


@pytest.mark.parametrize("command, expected", ROWS.values(), ids=ROWS.keys())
def test_simple_commands(command: Command, expected: list[tuple[str, ...]]) -> None:
    assert simple_commands(command) == expected


@pytest.mark.parametrize(
    "words, expected",
    [
        (("python", "-m", "a.b", "x"), "a.b"),
        (("/usr/bin/python3.12", "-u", "-W", "ignore", "-m", "a"), "a"),
        (("python", "-m"), None),
        (("python", "t.py", "-m", "a"), None),
        (("python", "-c", "x", "-m", "a"), None),
        (("pythonic", "-m", "a"), None),
        ((), None),
    ],
)
def test_python_module(words: tuple[str, ...], expected: str | None) -> None:
    assert python_module(words) == expected


def test_word_name() -> None:
    assert [word_name(word) for word in ("torchrun", "/opt/bin/torchrun", "./a")] == ["torchrun", "torchrun", "a"]


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (("python", "train.py"), ("python", "train.py", "--lr", "3", "a b")),
        ("python train.py", "python train.py --lr 3 'a b'"),
        ("python train.py \\\n  --epochs 2\n", "python train.py \\\n  --epochs 2 --lr 3 'a b'"),
        ("LR=1 python train.py > log.txt", "LR=1 python train.py > log.txt --lr 3 'a b'"),
        ('cd x; python train.py "$@" | tee log', "set -- --lr 3 'a b'\ncd x; python train.py \"$@\" | tee log"),
        ("python train.py # fast", None),
        ("cd x && python train.py", None),
        ("python train.py\npython eval.py", None),
        ("python train.py | tee log", None),
        ("python - <<E", None),
        ("echo 'open", None),
    ],
)
def test_arguments_are_added(command: Command, expected: Command | None) -> None:
    assert with_arguments(command, ["--lr", "3", "a b"]) == expected

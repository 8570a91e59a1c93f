"""Simple commands inside a shell command, without wrappers such as `env`, `exec` or `uv run`.

`cd x && FOO=1 exec uv run torchrun train.py` holds the simple commands `cd x` and `torchrun train.py`. This is a reader
for recognising programs, not a shell: it expands nothing and does not know here-documents.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import NamedTuple

from longboat.core.guards.lazy_pattern import lazy_pattern
from longboat.core.jobs import Command

_SEPARATORS = frozenset(";&|()\n")
_KEYWORDS = frozenset(("if", "then", "else", "elif", "do", "while", "until", "{", "!"))
SHELLS = ("sh", "bash", "dash", "zsh", "ksh")
_ASSIGNMENT = lazy_pattern(r"[A-Za-z_]\w*\+?=")
_PYTHON = lazy_pattern(r"(python|pypy)[\d.]*$")
_ARGUMENTS = lazy_pattern(r"\$[@*]|\$\{[@*]\}")
_MAX_NESTING = 5  # sh -c in sh -c: deeper is not looked into


class _Wrapper(NamedTuple):
    valued: tuple[str, ...] = ()  # options that take the next word
    positional: int = 0  # words of its own before the command
    verbs: tuple[str, ...] = ()  # it wraps only after one of these words


_RUN = ("run",)
_WRAPPERS: dict[str, _Wrapper] = {
    "exec": _Wrapper(("-a",)),
    "command": _Wrapper(),
    "nohup": _Wrapper(),
    "setsid": _Wrapper(),
    "time": _Wrapper(("-f", "-o")),
    "env": _Wrapper(("-u", "--unset", "-C", "--chdir")),
    "nice": _Wrapper(("-n",)),
    "ionice": _Wrapper(("-c", "-n")),
    "stdbuf": _Wrapper(("-i", "-o", "-e")),
    "timeout": _Wrapper(("-s", "-k", "--signal", "--kill-after"), 1),
    "taskset": _Wrapper((), 1),
    "numactl": _Wrapper(("-N", "-m", "-C", "-i", "-p")),
    "sudo": _Wrapper(("-u", "-g")),
    "tini": _Wrapper(),
    "dumb-init": _Wrapper(),
    "uv": _Wrapper(
        ("--with", "--python", "-p", "--extra", "--group", "--project", "--directory", "--env-file", "--index",
         "--with-requirements", "--with-editable", "--package", "--index-url", "--no-group", "--only-group"),
        verbs=_RUN,
    ),
    "poetry": _Wrapper(verbs=_RUN),
    "pdm": _Wrapper(verbs=_RUN),
    "pipenv": _Wrapper(verbs=_RUN),
    "hatch": _Wrapper(verbs=_RUN),
    "rye": _Wrapper(verbs=_RUN),
    "pixi": _Wrapper(("-e", "--environment", "--manifest-path"), verbs=_RUN),
    "conda": _Wrapper(("-n", "-p", "--name", "--prefix"), verbs=_RUN),
    "mamba": _Wrapper(("-n", "-p", "--name", "--prefix"), verbs=_RUN),
    "micromamba": _Wrapper(("-n", "-p", "--name", "--prefix"), verbs=_RUN),
    "nsys": _Wrapper(("-o", "-t", "-c", "--output", "--trace", "--capture-range"), verbs=("profile",)),
}  # fmt: skip


def simple_commands(command: Command) -> list[tuple[str, ...]]:
    """Every simple command of a command, in order, each without assignments and wrappers, never empty."""
    return _simple(command, _MAX_NESTING)


def with_arguments(command: Command, arguments: Sequence[str]) -> Command | None:
    """The command with these words after its own, quoted for the shell where it is a shell's text.

    Text that says `$@` gets them there. None for a text of several commands that does not: nobody knows whose they are.
    """
    if not isinstance(command, str):
        return (*command, *arguments)
    quoted = shlex.join(arguments)
    if _ARGUMENTS.search(command):
        return f"set -- {quoted}\n{command}"
    text = command.strip()
    try:
        words = _words(text)
    except ValueError:
        return None
    if any(word.startswith("#") or (word and set(word) <= _SEPARATORS) for word in words) or "<<" in text:
        return None
    return f"{text} {quoted}"


def word_name(word: str) -> str:
    """The program a first word names: `/opt/bin/torchrun` is `torchrun`."""
    return word.rpartition("/")[2]


def python_module(words: Sequence[str]) -> str | None:
    """The module of `python [options] -m module`, else None."""
    if not words or not _PYTHON.match(word_name(words[0])):
        return None
    rest = iter(words[1:])
    for word in rest:
        if word == "-m":
            return next(rest, None)
        if word in ("-X", "-W"):
            next(rest, None)
        elif word == "-c" or not word.startswith("-"):
            return None
        elif word.startswith("-") and not word.startswith("--") and word.endswith("m"):
            return next(rest, None)  # `python -um module`
    return None


def _simple(command: Command, depth: int) -> list[tuple[str, ...]]:
    groups = _split(command) if isinstance(command, str) else [list(command)]
    commands: list[tuple[str, ...]] = []
    for group in groups:
        words = _unwrapped(group)
        if not words:
            continue
        inner = _shell_text(words)
        if inner is not None and depth > 0:
            commands += _simple(inner, depth - 1)
        else:
            commands.append(tuple(words))
    return commands


def _split(text: str) -> list[list[str]]:
    try:
        words = _words(text)
    except ValueError:  # an open quote: the shell will complain, here plain words must do
        words = text.split()
    groups: list[list[str]] = [[]]
    in_comment = False
    for word in words:
        if word and set(word) <= _SEPARATORS:
            in_comment = in_comment and "\n" not in word
            groups.append([])
        elif in_comment or word.startswith("#"):
            in_comment = True
        else:
            groups[-1].append(word)
    return [group for group in groups if group]


def _words(text: str) -> list[str]:
    lexer = shlex.shlex(text.replace("\\\n", " "), posix=True, punctuation_chars="();<>|&\n")
    lexer.whitespace = " \t\r"
    lexer.whitespace_split = True
    lexer.commenters = ""
    return list(lexer)


def _unwrapped(words: Sequence[str]) -> list[str]:
    rest = list(words)
    while rest:
        if _ASSIGNMENT.match(rest[0]) or rest[0] in _KEYWORDS or rest[0] == "--":
            rest.pop(0)
            continue
        wrapper = _WRAPPERS.get(word_name(rest[0]))
        if wrapper is None:
            break
        inner = _inside(wrapper, rest[1:])
        if inner is None:
            break
        rest = inner
    return rest


def _inside(wrapper: _Wrapper, words: list[str]) -> list[str] | None:
    """The command that the wrapper starts, or None when it wraps nothing here."""
    rest = list(words)
    verb_seen = not wrapper.verbs
    positional = wrapper.positional
    while rest:
        word = rest[0]
        if word == "--":
            return rest[1:] or None if verb_seen else None
        if word.startswith("-"):
            del rest[: 2 if word in wrapper.valued else 1]
        elif not verb_seen:
            if word not in wrapper.verbs:
                return None
            verb_seen = True
            rest.pop(0)
        elif positional:
            positional -= 1
            rest.pop(0)
        else:
            return rest
    return None


def _shell_text(words: Sequence[str]) -> str | None:
    """The text of `sh -c TEXT`, else None."""
    if word_name(words[0]) not in SHELLS:
        return None
    for position, word in enumerate(words[1:], start=1):
        if not word.startswith("-"):
            return None
        if not word.startswith("--") and "c" in word:
            return words[position + 1] if position + 1 < len(words) else None
    return None

"""Paths that a command or the message of a failure mentions. Pure text: no file is looked at."""

from __future__ import annotations

import posixpath
import shlex
from collections.abc import Iterable, Sequence

from longboat.core.guards.lazy_pattern import lazy_pattern

_MISSING = lazy_pattern(
    r"No such file or directory|not found|does not exist|doesn't exist|can't open|cannot open|[Uu]nable to open"
    r"|FileNotFoundError|not a directory|cannot access|Cannot find"
)
_MODULE = lazy_pattern(r"No module named '?([A-Za-z_][\w.]*)'?")
_QUOTED = lazy_pattern(r"'([^'\n]+)'|\"([^\"\n]+)\"|`([^`\n]+)`")
_WRITTEN = lazy_pattern(
    r"(^|[-_./])(out|output|outputs|save|log|logs|logdir|result|results|runs?|wandb|ckpts?|checkpoints?)([-_./]|$)"
)
"""Words that name what a training writes: that such a folder stays behind is what everybody wants."""
_SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ksh"})
_SHELL_TEXT = lazy_pattern(r"-[a-z]*c")
_MOST = 200
"""Words of a message or a command that are looked at."""


def in_command(command: str | Sequence[str]) -> list[str]:
    """Relative paths among the words of a command, in order; not those that it writes, by their names."""
    words = _words(command) if isinstance(command, str) else [inner for word in _unwrapped(command) for inner in word]
    paths: list[str] = []
    before = ""
    for word in words[:_MOST]:
        option, _, value = word.partition("=") if "=" in word else ("", "", word)
        name = option or (before if before.startswith("-") else "")
        path = _relative(value)
        if path is not None and not _is_written(name, path):
            paths.append(path)
        before = word
    return list(dict.fromkeys(paths))


def _unwrapped(command: Sequence[str]) -> list[list[str]]:
    """The words of a command that is a list; those of the text that a shell in it is given: `bash -c 'source x'`."""
    is_shell = [posixpath.basename(word) in _SHELLS for word in command]
    return [
        _words(word) if number > 1 and _SHELL_TEXT.fullmatch(command[number - 1]) and any(is_shell[:number]) else [word]
        for number, word in enumerate(command)
    ]


def _is_written(option: str, path: str) -> bool:
    return bool(_WRITTEN.search(option.lstrip("-").lower()) or _WRITTEN.search(path.lower()))


def _words(text: str) -> list[str]:
    try:
        reader = shlex.shlex(text, posix=True, punctuation_chars=True)
        reader.whitespace_split = True
        reader.commenters = ""
        return list(reader)
    except ValueError:
        return text.split()


def in_failure(lines: Iterable[str], *, work: str = "", folders: Sequence[str] = ()) -> list[str]:
    """Relative paths that lines about something missing mention: files, and what a module may be.

    `work`: the working copy, where a message names it in full; `folders`: where modules may lie, beside the top.
    """
    paths: list[str] = []
    for line in lines:
        module = _MODULE.search(line)
        if module is not None:
            inner = module[1].replace(".", "/")
            top = inner.partition("/")[0]
            for folder in dict.fromkeys(["", "src", *folders]):
                paths += [posixpath.join(folder, each) for each in (f"{inner}.py", inner, f"{top}.py", top)]
        elif _MISSING.search(line):
            quoted = [next(filter(None, groups)) for groups in _QUOTED.findall(line)]
            for word in [*quoted, *(part.strip("'\"`:,;()") for part in line.split())][:_MOST]:
                path = _relative(_in_copy(word, work))
                if path is not None:
                    paths.append(path)
    return list(dict.fromkeys(paths))


def _in_copy(word: str, work: str) -> str:
    """A path in a working copy, as one from its top: on a node the copy lies elsewhere, in a folder of this name."""
    if work and word.startswith(work.rstrip("/") + "/"):
        return word[len(work.rstrip("/")) + 1 :]
    return word.rpartition("/work/")[2] if word.startswith("/") else word


def _relative(word: str) -> str | None:
    if not word or len(word) > 500 or word.startswith(("/", "~", "$", "-")) or "://" in word or "\0" in word:
        return None
    path = posixpath.normpath(word)
    return None if path == "." or path.startswith("..") else path

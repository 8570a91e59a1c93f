"""Ignore files, with patterns as in .gitignore: what a line means, and what the lines of all folders say about a path.
Pure.

One wish differs from git on purpose: `?` and `[...]` match one character, also one that takes several bytes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

from longboat.core.jobs import Value

_SPECIAL = "*?[\\"
_STAR, _FOLDERS, _ANYTHING = "[^/]*", "(?:.*/)?", ".*"
_STARS = (_STAR, _FOLDERS, _ANYTHING)
_CLASSES = {
    "alnum": "0-9A-Za-z",
    "alpha": "A-Za-z",
    "blank": " \\t",
    "cntrl": "\\x00-\\x1f\\x7f",
    "digit": "0-9",
    "graph": "\\x21-\\x7e",
    "lower": "a-z",
    "print": "\\x20-\\x7e",
    "punct": "!-/:-@\\[-`{-~",
    "space": " \\t\\n\\r\\f\\v",
    "upper": "A-Z",
    "xdigit": "0-9A-Fa-f",
}


class _Malformed(Exception):
    """A pattern that matches nothing, as in git."""


class Pattern(Value, frozen=True):
    """One line of an ignore file."""

    text: str
    negated: bool  # the line takes back in what earlier ones left out
    folders_only: bool
    anchored: bool  # matched against the path from the ignore file's folder, else against the name alone
    matcher: re.Pattern[str] | None  # None: the line is malformed and matches nothing

    def matches(self, path: str, name: str, is_folder: bool) -> bool:
        """`path` is relative to the folder of the ignore file, `name` its last part."""
        if self.matcher is None or (self.folders_only and not is_folder):
            return False
        return self.matcher.fullmatch(path if self.anchored else name) is not None


def parse(text: str) -> tuple[Pattern, ...]:
    """The patterns of an ignore file, in order."""
    lines = text.removeprefix("\ufeff").split("\n")
    patterns = (parse_line(line.removesuffix("\r")) for line in lines)
    return tuple(pattern for pattern in patterns if pattern is not None)


def parse_line(line: str) -> Pattern | None:
    if line.startswith("#"):
        return None
    text = _without_trailing_spaces(line)
    body = text
    negated = body.startswith("!")
    if negated:
        body = body[1:]
    if not body:
        return None
    folders_only = body.endswith("/")
    if folders_only:
        body = body[:-1]
    anchored = "/" in body
    body = body.removeprefix("/")
    try:
        matcher = re.compile(translate(body), re.DOTALL) if body else None
    except (_Malformed, re.error):
        matcher = None
    return Pattern(text=text, negated=negated, folders_only=folders_only, anchored=anchored, matcher=matcher)


def _without_trailing_spaces(line: str) -> str:
    end = len(line)
    while end and line[end - 1] == " ":
        backslashes = len(line[: end - 1]) - len(line[: end - 1].rstrip("\\"))
        if backslashes % 2:
            break
        end -= 1
    return line[:end]


def literal_prefix(body: str) -> str:
    """The part of a pattern before its first special character."""
    return body[: next((place for place, char in enumerate(body) if char in _SPECIAL), len(body))]


def is_literal(body: str) -> bool:
    return literal_prefix(body) == body


def translate(body: str) -> str:
    """A regular expression for the pattern. Like git, the literal prefix is taken off first, so `**` counts as such
    directly after it."""
    prefix = literal_prefix(body)
    return re.escape(prefix) + _translate_rest(body[len(prefix) :])


def _translate_rest(text: str) -> str:
    parts: list[str] = []
    place = 0
    while place < len(text):
        char = text[place]
        if char == "*":
            part, place = _stars(text, place)
        elif char == "?":
            part, place = "[^/]", place + 1
        elif char == "[":
            part, place = _class(text, place)
        elif char == "\\":
            if place + 1 == len(text):
                raise _Malformed
            part, place = re.escape(text[place + 1]), place + 2
        else:
            part, place = re.escape(char), place + 1
        parts.append(part)
    return _joined(parts)


def _joined(parts: Sequence[str]) -> str:
    """The parts as one expression that never tries more ways than needed: what follows a star is matched at its first
    place and never again elsewhere, which loses nothing, because the next star takes up whatever is left."""
    joined: list[str] = []
    stars = [place for place, part in enumerate(parts) if part in _STARS]
    for number, place in enumerate((-1, *stars)):
        end = (*stars, len(parts))[number]
        piece = "".join(parts[place + 1 : end])
        if place < 0 or parts[place] != _STAR or end == len(parts):
            joined.append((parts[place] if place >= 0 else "") + piece)
        else:
            joined.append(f"(?=(?P<s{number}>[^/]*?{piece}))(?P=s{number})")
    return "".join(joined)


def _stars(text: str, start: int) -> tuple[str, int]:
    end = start
    while end < len(text) and text[end] == "*":
        end += 1
    rest = text[end:]
    whole = (start == 0 or text[start - 1] == "/") and (not rest or rest.startswith(("/", "\\/")))
    if end - start == 1 or not whole:
        return _STAR, end
    if rest.startswith("/"):
        return _FOLDERS, end + 1
    return _ANYTHING, end


def _class(text: str, start: int) -> tuple[str, int]:
    """A bracket expression; it never matches a slash."""
    place = start + 1
    negated = text[place : place + 1] in ("!", "^")
    place += negated
    parts: list[str] = []
    previous = ""  # the character a range may start from
    first = True
    while first or text[place : place + 1] != "]":
        first = False
        char = text[place : place + 1]
        if not char:
            raise _Malformed
        following = text[place + 1 : place + 2]
        if char == "-" and previous and following not in ("", "]"):
            last, place = _escaped(text, place + 1)
            parts.append(f"{re.escape(previous)}-{re.escape(last)}" if previous <= last else "")
            previous = ""
        elif char == "[" and following == ":":
            part, place, previous = _named_class(text, place)
            parts.append(part)
        else:
            previous, place = _escaped(text, place)
            parts.append(re.escape(previous))
    return _brackets("".join(parts), negated), place + 1


def _brackets(inner: str, negated: bool) -> str:
    if negated:
        return f"[^/{inner}]"
    return f"(?!/)[{inner}]" if inner else "(?!)"


def _escaped(text: str, place: int) -> tuple[str, int]:
    """The character at this place, a backslash taken off, and the place after it."""
    place += text[place : place + 1] == "\\"
    if place >= len(text):
        raise _Malformed
    return text[place], place + 1


def _named_class(text: str, place: int) -> tuple[str, int, str]:
    end = text.find("]", place + 2)
    if end < 0:
        raise _Malformed
    if text[end - 1] != ":" or end - 1 < place + 2:
        return re.escape("["), place + 1, "["  # no closing `:]`: the bracket stands for itself
    name = text[place + 2 : end - 1]
    if name not in _CLASSES:
        raise _Malformed
    return _CLASSES[name], end + 1, ""


class IgnoreRules:
    """The patterns of all folders of one tree, read when a folder is first entered.

    The last match in the deepest folder decides; nothing below a folder that is left out comes back.
    """

    def __init__(self, patterns_of: Callable[[str], Sequence[Pattern]]) -> None:
        self._patterns_of = patterns_of  # of a folder, relative to the tree, "" for its root
        self._patterns: dict[str, Sequence[Pattern]] = {}
        self._verdicts: dict[str, bool | None] = {}
        self._enter("", None)

    @classmethod
    def at_root(cls, lines: Iterable[str]) -> IgnoreRules:
        """These lines as the only patterns of the tree."""
        patterns = parse("\n".join(lines))
        return cls(lambda folder: patterns if not folder else ())

    def _enter(self, folder: str, verdict: bool | None) -> None:
        self._verdicts[folder] = verdict
        if verdict is not False and (patterns := self._patterns_of(folder)):
            self._patterns[folder] = patterns

    def folder(self, path: str) -> bool | None:
        """True: taken back in, also what lies below and has no other verdict. False: left out. None: nothing said."""
        unknown = []
        while path not in self._verdicts:
            unknown.append(path)
            path = path.rpartition("/")[0]
        verdict = self._verdicts[path]
        for path in reversed(unknown):
            if verdict is not False:
                said = self._says(path, is_folder=True)
                verdict = verdict if said is None else said
            self._enter(path, verdict)
        return verdict

    def file(self, path: str) -> bool | None:
        inherited = self.folder(path.rpartition("/")[0])
        if inherited is False or not self._patterns:
            return inherited
        said = self._says(path, is_folder=False)
        return inherited if said is None else said

    def takes_back(self) -> list[tuple[str, Pattern]]:
        """The negated patterns met so far, each with its folder."""
        return [
            (folder, pattern) for folder, patterns in self._patterns.items() for pattern in patterns if pattern.negated
        ]

    def leaves_out(self, path: str, *, is_folder: bool) -> tuple[str, Pattern] | None:
        """The line that leaves this path out, or a folder above it; with the folder of its ignore file."""
        parts = path.split("/")
        for depth in range(1, len(parts) + 1):
            above = "/".join(parts[:depth])
            line = self._match(above, is_folder=is_folder or depth < len(parts))
            if line is not None and not line[1].negated:
                return line
            self.folder(above if depth < len(parts) else above.rpartition("/")[0])  # reads its ignore file
        return None

    def _says(self, path: str, *, is_folder: bool) -> bool | None:
        line = self._match(path, is_folder=is_folder)
        return None if line is None else line[1].negated

    def _match(self, path: str, *, is_folder: bool) -> tuple[str, Pattern] | None:
        """The line that decides about a path, with the folder of its ignore file."""
        if not self._patterns:
            return None
        folder, _, name = path.rpartition("/")
        while True:
            patterns = self._patterns.get(folder)
            if patterns is not None:
                inner = path[len(folder) + 1 :] if folder else path
                for pattern in reversed(patterns):
                    if pattern.matches(inner, name, is_folder):
                        return folder, pattern
            if not folder:
                return None
            folder = folder.rpartition("/")[0]

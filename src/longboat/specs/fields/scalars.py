"""Kinds of scalar values a field may have: each reads a node, says what it allows, and gives its JSON schema."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Protocol

from longboat.core import resources, words
from longboat.core.guards.lazy_pattern import lazy_pattern
from longboat.core.jobs import Value
from longboat.specs.yaml.yaml_tree import Mistakes, YamlNode, join

_YAML11 = {"yes": "true", "on": "true", "no": "false", "off": "false", "y": "true", "n": "false"}
_UNSAFE = lazy_pattern("[\x00-\x08\x0a-\x1f\x7f]")
_PASSWORD = lazy_pattern(r"//[^/@\s]*@")
_QUERY = lazy_pattern(r"(://[^?#]*)[?#].*", re.DOTALL)  # of a signed URL it is the secret
_LEADING_ZERO = lazy_pattern(r"[-+]?0[0-9]")


class FieldPath(NamedTuple):
    """Where a reader is: the path so far, and where to put what is wrong."""

    path: str
    mistakes: Mistakes

    def into(self, key: str | int) -> FieldPath:
        return FieldPath(join(self.path, key), self.mistakes)

    def wrong(self, node: YamlNode, expected: str, *, hint: str | None = None) -> None:
        self.mistakes.add(node.place, self.path, f"found {describe(node)}, expected {expected}", hint=hint)

    def problem(self, node: YamlNode, message: str, *, hint: str | None = None) -> None:
        self.mistakes.add(node.place, self.path, message, hint=hint)


class FieldType(Protocol):
    """Reads None where it reported a problem; the whole is only used when there was none."""

    @property
    def expected(self) -> str: ...

    def read(self, node: YamlNode, at: FieldPath) -> Any: ...

    def schema(self) -> dict[str, Any]: ...


def describe(node: YamlNode) -> str:
    value = node.value
    if value is None:
        return "nothing (null)"
    if isinstance(value, (list, dict)):
        return "a list" if isinstance(value, list) else "a mapping"
    shown = node.shown if node.shown is not None else node.text
    shown = _QUERY.sub(r"\1?***", _PASSWORD.sub("//***@", shown))
    shown = shown if len(shown) <= 60 else shown[:57] + "..."
    if isinstance(value, str):
        return f"the text {quote(shown)}"
    return shown if isinstance(value, bool) else f"the number {shown}"


def quote(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def nearest(name: str, names: Iterable[str]) -> str:
    """`; did you mean "gpus"?`, or nothing."""
    near = words.nearest(name, names)
    return f'; did you mean "{near[0]}"?' if near else ""


def number_of(node: YamlNode, at: FieldPath, expected: str) -> int | float | None:
    """The number of a scalar, refusing what YAML readers disagree on."""
    value = node.value
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        unquote = isinstance(value, str) and not node.plain and re.fullmatch(r"[0-9.]+", value)
        at.wrong(node, expected, hint="write it without quotes" if unquote else None)
        return None
    if node.plain and _LEADING_ZERO.match(node.text) and isinstance(value, int):
        octal = f", or 0o{node.text[1:]} if octal is meant" if re.fullmatch(r"0[0-7]+", node.text) else ""
        hint = f"write {value}{octal}"
        at.wrong(node, f"{expected}, without a leading zero", hint=hint)
        return None
    if math.isnan(value) or math.isinf(value):
        at.wrong(node, expected)
        return None
    return value


class Text(Value, frozen=True):
    """Text on one line."""

    expected: str = "text"
    pattern: str | None = None
    longest: int = 4096
    suggest: Callable[[str], str] | None = None
    check: Callable[[str], str | None] | None = None  # says what is wrong, if anything
    hidden: bool = False  # it may be a secret put in the wrong place: never shown

    def read(self, node: YamlNode, at: FieldPath) -> str | None:
        if self.hidden:
            node = node._replace(shown="***")
        value = node.value
        if not isinstance(value, str):
            at.wrong(node, self.expected, hint=self._as_text(node))
            return None
        value = value.strip()
        if _UNSAFE.search(value) or not is_encodable(value):
            at.problem(node, f"found a control character or more than one line, expected {self.expected}")
            return None
        if not value or len(value) > self.longest:
            most = f" of at most {self.longest} characters" if value else ""
            at.wrong(node, self.expected + most)
            return None
        if self.pattern is not None and not re.fullmatch(self.pattern, value):
            at.wrong(node, self.expected + (f"; for example {self.suggest(value)}" if self.suggest else ""))
            return None
        if self.check is not None and (fault := self.check(value)):
            at.problem(node, fault)
            return None
        return value

    def _as_text(self, node: YamlNode) -> str | None:
        """What to write where the value is no text, if its text would be allowed or something near it is known."""
        if not node.is_scalar or node.value is None:
            return None
        is_allowed = self.pattern is None or re.fullmatch(self.pattern, node.text)
        if is_allowed and not (self.check and self.check(node.text)):
            return f"quote it: {quote(node.shown or node.text)}"
        return f"for example {self.suggest(node.text)}" if self.suggest and not self.hidden else None

    def schema(self) -> dict[str, Any]:
        return {"type": "string", **({"pattern": f"^({self.pattern})$"} if self.pattern else {"minLength": 1})}


def is_encodable(text: str) -> bool:
    """False for half of a surrogate pair, which no file and no environment can hold."""
    return not any("\ud800" <= character <= "\udfff" for character in text)


def text_fault(text: str, most: int) -> tuple[str, str | None] | None:
    """Why no program can be given this text, and what to do about it; None: it can."""
    if "\0" in text:
        return "found a NUL", None
    if not is_encodable(text):
        return "found half a character", "a command line that is not UTF-8 is read so: LC_ALL=C.UTF-8 longboat ..."
    if len(text) > most:
        return f"found {len(text):,} characters, expected at most {most:,}", "write it to a file of the code"
    return None


class WholeNumber(Value, frozen=True):
    low: int = 0
    high: int = 10_000
    word: str | None = None  # a word that stands for a number to be found later

    @property
    def expected(self) -> str:
        numbers = f"a whole number from {self.low} to {self.high}"
        return f"{numbers}, or {self.word}" if self.word else numbers

    def read(self, node: YamlNode, at: FieldPath) -> int | str | None:
        if self.word is not None and node.value == self.word:
            return self.word
        value = number_of(node, at, self.expected)
        if value is None:
            return None
        if not isinstance(value, int) or not self.low <= value <= self.high:
            at.wrong(node, self.expected)
            return None
        return value

    def schema(self) -> dict[str, Any]:
        whole = {"type": "integer", "minimum": self.low, "maximum": self.high}
        return {"anyOf": [whole, {"const": self.word}]} if self.word else whole


class ChoiceOf(Value, frozen=True):
    options: tuple[str, ...]

    @property
    def expected(self) -> str:
        return "one of " + ", ".join(self.options)

    def read(self, node: YamlNode, at: FieldPath) -> str | None:
        if isinstance(node.value, str) and node.value in self.options:
            return node.value
        close = nearest(node.value, self.options) if isinstance(node.value, str) else ""
        is_bare = not isinstance(node.value, str) and node.text in self.options
        at.wrong(node, self.expected + close, hint=f'quote it: "{node.text}"' if is_bare else None)
        return None

    def schema(self) -> dict[str, Any]:
        return {"enum": list(self.options)}


class Flag(Value, frozen=True):
    expected: str = "true or false"

    def read(self, node: YamlNode, at: FieldPath) -> bool | None:
        if isinstance(node.value, bool):
            return node.value
        meant = _YAML11.get(node.value.lower()) if isinstance(node.value, str) else None
        at.wrong(node, self.expected, hint=f"write {meant}; in YAML 1.2 {node.text} is text" if meant else None)
        return None

    def schema(self) -> dict[str, Any]:
        return {"type": "boolean"}


class Quantified(Value, frozen=True):
    """A number or a text with a unit: sizes, durations, CPUs."""

    expected: str
    parse: Callable[[str], float]
    pattern: str
    low: float
    high: float
    limits: str  # how the limits read: "from 1Mi to 1Pi"
    whole: bool = False
    off: bool = False  # the word off stands for none

    def read(self, node: YamlNode, at: FieldPath) -> float | None:
        expected = f"{self.expected}{', or off' if self.off else ''}, {self.limits}"
        if self.off and (node.value == "off" or node.value is False):
            return None
        if isinstance(node.value, str):
            try:
                value = self.parse(node.value)
            except ValueError:
                at.wrong(node, expected)
                return None
        else:
            number = number_of(node, at, expected)
            if number is None:
                return None
            value = number
        if not self.low <= value <= self.high or (self.whole and value != int(value)):
            at.wrong(node, expected)
            return None
        return int(value) if self.whole else float(value)

    def schema(self) -> dict[str, Any]:
        numeric = {"type": "integer" if self.whole else "number", "minimum": self.low, "maximum": self.high}
        texts: list[dict[str, Any]] = [{"type": "string", "pattern": self.pattern}]
        return {"anyOf": [numeric, *texts, *([{"enum": ["off", False]}] if self.off else [])]}


def size(low: int = 1 << 20) -> Quantified:
    return Quantified(
        expected=resources.QUANTITY,
        parse=resources.parse_quantity,
        pattern=resources.QUANTITY_PATTERN,
        low=low,
        high=resources.MAX_BYTES,
        limits=f"from {resources.format_quantity(low)} to 1Pi",
        whole=True,
    )


def duration(low: float, high: float = resources.MAX_DURATION_S, *, off: bool = False) -> Quantified:
    return Quantified(
        expected=resources.DURATION,
        parse=resources.parse_duration,
        pattern=resources.DURATION_PATTERN,
        low=low,
        high=high,
        limits=f"from {resources.format_duration(low)} to {resources.format_duration(high)}",
        off=off,
    )


CPUS = Quantified(
    expected=resources.CPUS,
    parse=resources.parse_cpus,
    pattern=resources.CPUS_PATTERN,
    low=0.001,
    high=resources.MAX_CPUS,
    limits=f"from 1m to {resources.MAX_CPUS}",
)

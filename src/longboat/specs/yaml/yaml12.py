"""YAML 1.2 (and so JSON) text to a tree of nodes with positions. Knows nothing of jobs.

PyYAML supplies the events; scalars are resolved here by the core schema of YAML 1.2, so that `no` is text and `1e-3`
a number. Building from events with an explicit stack bounds nesting and aliases before they can hurt.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import Any

from longboat.specs.yaml.yaml_tree import MAX_DEPTH, MAX_NODES, Mistakes, SourcePosition, YamlNode, resolve

MAX_FILE_BYTES = 1 << 20  # a job has a hundred lines; larger is some other file
_CORE_TAGS = {"!", "tag:yaml.org,2002:str", "tag:yaml.org,2002:map", "tag:yaml.org,2002:seq"}
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff\ufffe\uffff]")
_SURROGATES = re.compile(r"\\u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})")
_RESERVED = {"@": "at sign", "`": "backquote", "%": "percent sign"}


class _Stop(Exception):
    """Ends the building of a tree at a mistake that leaves nothing sensible to go on with."""

    def __init__(self, message: str, place: SourcePosition, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message, self.place, self.hint = message, place, hint


def parse_bytes(data: bytes, *, file: str, mistakes: Mistakes) -> YamlNode | None:
    """The one document of a file; None, with the reason among the mistakes, when there is no making sense of it."""
    try:
        text = _decode(data, file)
    except _Stop as stop:
        mistakes.add(stop.place, "", stop.message, hint=stop.hint)
        return None
    if file.endswith(".json"):
        text = _SURROGATES.sub(_join_surrogates, text)
    return parse_text(text, file=file, mistakes=mistakes)


def parse_text(text: str, *, file: str, mistakes: Mistakes) -> YamlNode | None:
    import yaml

    try:
        if bad := _CONTROL.search(text):
            character = "a NUL byte" if bad.group() == "\0" else f"the control character U+{ord(bad.group()):04X}"
            raise _Stop(f"found {character}", _place_after(text[: bad.start()], file))
        return _Builder(file, mistakes).build(_events(text))
    except _Stop as stop:
        mistakes.add(stop.place, "", stop.message, hint=stop.hint)
    except yaml.YAMLError as bad_yaml:
        fault = _syntax_error(bad_yaml, text, file)
        mistakes.add(fault.place, "", fault.message, hint=fault.hint)
    return None


def split_documents(text: str) -> list[str]:
    """Each document of a text, after as many empty lines as stand before it: places in messages stay true."""
    import yaml

    starts: list[int] = []
    with contextlib.suppress(yaml.YAMLError):  # whoever parses the document says what is wrong
        for event in _events(text):
            if isinstance(event, yaml.DocumentStartEvent):
                mark: Any = event.start_mark
                starts.append(mark.line)
    lines = text.split("\n")
    if len(starts) < 2:
        return [text]
    ends = [*starts[1:], len(lines)]
    return ["\n" * start + "\n".join(lines[start:end]) for start, end in zip(starts, ends, strict=True)]


def _decode(data: bytes, file: str) -> str:
    if len(data) > MAX_FILE_BYTES:
        raise _Stop(
            f"the file has more than {MAX_FILE_BYTES} bytes, the most a job file can have", SourcePosition(file)
        )
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise _Stop("the file is UTF-16", SourcePosition(file, 1, 1), hint="save it as UTF-8")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        pass
    try:  # without the BOM handling, which shifts the offset
        return data.decode("utf-8")
    except UnicodeDecodeError as bad:
        place = _place_after(data[: bad.start].decode("utf-8", "replace").removeprefix("\ufeff"), file)
        message = f"byte {bad.start} (0x{data[bad.start]:02x}) is not UTF-8"
        raise _Stop(message, place, hint="save the file as UTF-8") from None


def _place_after(before: str, file: str) -> SourcePosition:
    return SourcePosition(file, before.count("\n") + 1, len(before) - before.rfind("\n"))


def _join_surrogates(match: re.Match[str]) -> str:
    """JSON writes one character as two escapes; YAML does not know them."""
    return (int(match[1], 16).to_bytes(2, "big") + int(match[2], 16).to_bytes(2, "big")).decode("utf-16-be")


def _events(text: str) -> Iterator[Any]:
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return iter(yaml.parse(text, Loader=loader))


class _Open:
    """A list or mapping whose end has not been seen yet."""

    __slots__ = ("node", "anchor", "size", "height", "key", "key_place", "merges")

    def __init__(self, node: YamlNode, anchor: str | None) -> None:
        self.node, self.anchor = node, anchor
        self.size, self.height = 1, 1
        self.key: str | None = None
        self.key_place = node.place
        self.merges: list[tuple[YamlNode, SourcePosition]] = []


class _Builder:
    def __init__(self, file: str, mistakes: Mistakes) -> None:
        self.file, self.mistakes = file, mistakes
        self.anchors: dict[str, tuple[YamlNode, int, int]] = {}  # name -> node, expanded size, height
        self.stack: list[_Open] = []
        self.total = 0
        self.root: YamlNode | None = None

    def build(self, events: Iterator[Any]) -> YamlNode:
        import yaml

        documents = 0
        for event in events:
            if isinstance(event, yaml.DocumentStartEvent):
                documents += 1
                if documents > 1:
                    raise self._stop("a second document begins here", event, hint="one job file is one document")
            elif isinstance(event, yaml.AliasEvent):
                self._alias(event)
            elif isinstance(event, yaml.ScalarEvent):
                self._scalar(event)
            elif isinstance(event, yaml.MappingStartEvent | yaml.SequenceStartEvent):
                self._open(event, {} if isinstance(event, yaml.MappingStartEvent) else [])
            elif isinstance(event, yaml.MappingEndEvent | yaml.SequenceEndEvent):
                self._close(event)
        return self.root if self.root is not None else YamlNode(None, SourcePosition(self.file, 1, 1))

    def _stop(self, message: str, event: Any, *, hint: str | None = None) -> _Stop:
        return _Stop(message, self._place(event), hint=hint)

    def _place(self, event: Any) -> SourcePosition:
        return SourcePosition(self.file, event.start_mark.line + 1, event.start_mark.column + 1)

    def _scalar(self, event: Any) -> None:
        plain = not event.style
        explicit = event.tag is not None
        if explicit:
            self._check_tag(event)
        value = event.value if explicit or not plain else resolve(event.value)
        node = YamlNode(value, self._place(event), text=event.value, plain=plain and not explicit)
        if event.anchor:
            self.anchors[event.anchor] = (node, 1, 0)
        self._put(node, event, size=1, height=0)

    def _check_tag(self, event: Any) -> None:
        if event.tag is not None and event.tag not in _CORE_TAGS:
            tag = event.tag.replace("tag:yaml.org,2002:", "!!")[:60]
            self.mistakes.add(self._place(event), "", f"found the tag {tag}, tags are not used in job files")

    def _alias(self, event: Any) -> None:
        known = self.anchors.get(event.anchor)
        if known is None:
            inside = any(frame.anchor == event.anchor for frame in self.stack)
            problem = "refers to the very thing it is part of" if inside else "refers to no anchor above it"
            raise self._stop(f"the alias *{event.anchor[:60]} {problem}", event)
        node, size, height = known
        self._put(node, event, size=size, height=height)

    def _open(self, event: Any, empty: list[YamlNode] | dict[str, YamlNode]) -> None:
        self._check_tag(event)
        if self.stack and isinstance(self.stack[-1].node.value, dict) and self.stack[-1].key is None:
            raise self._stop("found a list or mapping as a key, expected text", event)
        if len(self.stack) >= MAX_DEPTH:
            raise self._stop(f"nested deeper than {MAX_DEPTH} levels", event)
        keys: dict[str, SourcePosition] = {}
        self.anchors.pop(event.anchor, None)
        self.stack.append(_Open(YamlNode(empty, self._place(event), keys=keys), event.anchor))

    def _close(self, event: Any) -> None:
        frame = self.stack.pop()
        self._merge_keys(frame)
        if frame.anchor:
            self.anchors[frame.anchor] = (frame.node, frame.size, frame.height)
        self.total -= frame.size - 1
        self._put(frame.node, event, size=frame.size, height=frame.height)

    def _put(self, node: YamlNode, event: Any, *, size: int, height: int) -> None:
        self.total += size
        if self.total > MAX_NODES:
            raise self._stop(f"the file stands for more than {MAX_NODES} values (aliases counted)", event)
        if not self.stack:
            self.root = node
            return
        frame = self.stack[-1]
        if len(self.stack) + height > MAX_DEPTH:
            raise self._stop(f"nested deeper than {MAX_DEPTH} levels", event)
        frame.size += size
        frame.height = max(frame.height, height + 1)
        if isinstance(frame.node.value, list):
            frame.node.value.append(node)
        elif frame.key is None:
            self._key(frame, node, event)
        else:
            self._entry(frame, node, event)

    def _key(self, frame: _Open, node: YamlNode, event: Any) -> None:
        if not node.is_scalar or node.value is None and node.plain:
            raise self._stop("found an empty key or a key that is not text", event)
        frame.key, frame.key_place = node.text, self._place(event)
        seen = frame.node.keys.get(node.text)
        if seen is not None and not (node.text == "<<" and node.plain):
            problem = f"the key {_short(node.text)} is written twice; the first is at {seen.line}:{seen.column}"
            self.mistakes.add(frame.key_place, "", problem, hint="keep one of the two")

    def _entry(self, frame: _Open, node: YamlNode, event: Any) -> None:
        key = frame.key or ""
        frame.key = None
        if key == "<<":
            frame.merges.append((node, self._place(event)))
            return
        assert isinstance(frame.node.value, dict) and isinstance(frame.node.keys, dict)
        frame.node.value.setdefault(key, node)
        frame.node.keys.setdefault(key, frame.key_place)

    def _merge_keys(self, frame: _Open) -> None:
        """`<<: *other`: the other's entries, where this mapping has none of its own."""
        for source, place in frame.merges:
            for other in source.value if isinstance(source.value, list) else [source]:
                if not isinstance(other.value, dict) or not isinstance(frame.node.value, dict):
                    raise _Stop("<< takes a mapping or a list of mappings", place)
                for key, node in other.value.items():
                    frame.node.value.setdefault(key, node)
                    assert isinstance(frame.node.keys, dict)
                    frame.node.keys.setdefault(key, other.keys.get(key, node.place))


def _short(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:57] + "...")


def _syntax_error(bad: Exception, text: str, file: str) -> _Stop:
    mark = getattr(bad, "problem_mark", None) or getattr(bad, "context_mark", None)
    if mark is None:
        reason = getattr(bad, "reason", None) or getattr(bad, "problem", None) or "not understood"
        return _Stop(f"not valid YAML: {reason}", SourcePosition(file))
    lines = text.splitlines()
    line = lines[mark.line] if mark.line < len(lines) else ""
    place = SourcePosition(file, mark.line + 1, mark.column + 1)
    indent = line[: len(line) - len(line.lstrip())]
    if "\t" in indent:
        tab = SourcePosition(file, mark.line + 1, indent.index("\t") + 1)
        return _Stop("found a tab in the indentation, YAML allows only spaces", tab, hint="replace the tab by spaces")
    if line[mark.column : mark.column + 1] == "\t":
        return _Stop("found a tab where YAML allows only spaces", place, hint="replace the tab by spaces")
    problem = str(getattr(bad, "problem", "") or "not understood")
    begun = getattr(bad, "context_mark", None)
    context = f", {getattr(bad, 'context', '')} begun at {begun.line + 1}:{begun.column + 1}" if begun else ""
    return _Stop(f"not valid YAML: {problem}{context}", place, hint=_syntax_hint(problem, line, mark.column))


def _syntax_hint(problem: str, line: str, column: int) -> str | None:
    if "${" in line and ("{" in line.replace("${", "") or "," in problem):
        return "inside { } or [ ] a value with ${...} must be quoted"
    if "mapping values are not allowed" in problem:
        return "quote a value that has `: ` in it, and check the indentation"
    if "cannot start any token" in problem and (name := _RESERVED.get(line[column : column + 1])):
        return f"quote a value that begins with the {name}"
    if "could not find expected" in problem or "did not find expected" in problem:
        return "check the indentation, brackets and quotes of this line and the one above"
    return None

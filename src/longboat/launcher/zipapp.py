"""The launcher as a zip application: `python -m longboat.launcher.zipapp OUT` writes a zip file that Python runs
directly."""

from __future__ import annotations

import json
import os
import sys

from longboat.launcher.vendored import FILES, PACKED

FOR_RANKS = ("trainer.py", "trainer_rare.py", "following.py", "rank_package.py", "sharding.py")
"""What `import longboat` gives a trainer: with its docstrings, which `help` shows."""
_QUOTES = b'"' * 3
_TYPES = b"if TYPE_CHECKING:"


def write_zipapp(path: str) -> None:
    """Write the launcher to `path`, the same bytes every time. Run it as `python -I -S <path> PLAN.json`."""
    import zipfile

    folder = os.path.dirname(os.path.abspath(__file__))
    texts = {os.path.relpath(path, folder): path for path in _sources(folder)}
    contents = {name: _read(path) if name in FOR_RANKS else _short(path) for name, path in texts.items()}
    packed = {name: _short(os.path.join(os.path.dirname(folder), name)).decode() for name in FILES}
    contents[PACKED] = json.dumps(packed, separators=(",", ":")).encode()  # together they take a third less
    temporary = path + ".tmp"
    with zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, text in contents.items():
            entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, text, compresslevel=9)
    os.replace(temporary, path)


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _short(path: str) -> bytes:
    """A module as it travels: what only readers need is left out, and every line stays where it was."""
    return with_less_indent(without_results(without_types(without_docstrings(_read(path)))))


def without_results(source: bytes) -> bytes:
    """A module whose functions do not say what they return, every line where it was: nobody checks it in a pod."""
    lines = source.split(b"\n")
    for number, line in enumerate(lines):
        head, arrow, result = line.rpartition(b") -> ")
        if arrow and result.endswith(b":") and (not head.strip() or head.lstrip().startswith((b"def ", b"async def "))):
            lines[number] = head + b"):"
    return b"\n".join(lines)


def without_docstrings(source: bytes) -> bytes:
    """A module without its docstrings and comments, every line where it was: nobody reads them in a pod.

    By lines, which holds for the way our code is laid out; `ast` takes five times as long, at every submission.
    """
    lines = source.split(b"\n")
    number = 0
    while number < len(lines):
        line = lines[number]
        quotes = line.count(_QUOTES)
        last = number
        if quotes % 2:
            last = next((later for later in range(number + 1, len(lines)) if _QUOTES in lines[later]), number)
        if quotes and line.lstrip().startswith(_QUOTES):
            rest = lines[last].rpartition(_QUOTES)[2]
            if not rest.strip() or rest.lstrip().startswith(b"#"):
                lines[number] = line[: len(line) - len(line.lstrip())] + b'""' + rest
                lines[number + 1 : last + 1] = [b""] * (last - number)
        elif not quotes:
            lines[number] = _without_comment(line)
        number = last + 1
    return b"\n".join(lines)


def without_types(source: bytes) -> bytes:
    """A module without what it imports for type checkers alone, every line where it was: nobody checks it in a pod."""
    lines = source.split(b"\n")
    is_inside = False
    for number, line in enumerate(lines):
        if is_inside and (line.startswith(b"    ") or not line):
            lines[number] = b"    pass" if lines[number - 1] == _TYPES else b""
        else:
            is_inside = line == _TYPES
    return b"\n".join(lines)


def with_less_indent(source: bytes) -> bytes:
    """A module whose blocks are indented by one blank, and without a block that has become empty, every line where it
    was; one with a text of several lines stays as it is."""
    before, empty, after = source.partition(b"\nTYPE_CHECKING = False\n" + _TYPES + b"\n    pass\n")
    if empty and b"TYPE_CHECKING" not in after and not after.lstrip().startswith(b"el"):
        source = before + b"\n\n\n\n" + after
    if _QUOTES in source or b"\\\n" in source:
        return source
    lines = [(len(line) - len(line.lstrip(b" ")), line.lstrip(b" ")) for line in source.split(b"\n")]
    return b"\n".join(b" " * (blanks // 4) + line for blanks, line in lines)


def _without_comment(line: bytes) -> bytes:
    """A line outside of long strings without its comment; one with a string around the `#` stays."""
    code, sign, comment = line.partition(b"# ")
    if not sign or b"'" in comment or b'"' in comment or (code.strip() and not code.endswith(b"  ")):
        return line
    return code.rstrip()


def _sources(folder: str) -> list[str]:
    return sorted(os.path.join(at, name) for at, _, names in os.walk(folder) for name in names if name.endswith(".py"))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m longboat.launcher.zipapp OUT")
    write_zipapp(sys.argv[1])

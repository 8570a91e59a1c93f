"""Scripts travel in characters that every login shell takes as they are."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longboat.clusters.hosts import scripts
from longboat.clusters.hosts.connection import FilePart
from longboat.clusters.hosts.output import HEAD, TAIL, ScriptOutput
from longboat.core.errors import EngineError

SCRIPT = "printf '%s|' \"$0\" \"it's\" '$HOME' `echo !! \\\\` é\ncat <<'E'\nläst\nE\n"


def out_of(command: str, stdin: bytes = b"") -> str:
    done = subprocess.run(["/bin/sh", "-c", command], input=stdin, capture_output=True, check=True)
    return done.stdout.decode()


@pytest.mark.parametrize("padding", [0, scripts.SHRINK_FROM])
def test_a_script_arrives_as_it_is(padding: int) -> None:
    command = scripts.command(SCRIPT + "#" * padding, mark="MARK", timeout_s=30.2)
    assert re.fullmatch(
        r"timeout -k 5 31 sh -c 'eval \"\$\(printf %s [A-Za-z0-9+/=]+ \| base64 -d( \| gzip -d)?\)\"'", command
    )
    first, _, rest = out_of(command).partition("\n")
    assert re.fullmatch("MARK [0-9]+", first)
    assert rest == "sh|it's|$HOME|!!|\\|é|läst\n"


def test_stdin_is_the_scripts() -> None:
    assert out_of(scripts.command("cat", mark="M", timeout_s=9), b"data").endswith("\ndata")


def test_too_long_and_impossible_scripts() -> None:
    with pytest.raises(EngineError, match="too long for a command line; send it as stdin"):
        scripts.command(os.urandom(200_000).hex(), mark="M", timeout_s=1)
    with pytest.raises(EngineError, match="NUL"):
        scripts.command("a\0b", mark="M", timeout_s=1)


@given(st.lists(st.binary(max_size=40), max_size=20), st.sampled_from([b"", b"noise\n", b"noise"]))
def test_text_begins_after_the_mark_however_it_is_cut(pieces: list[bytes], noise: bytes) -> None:
    lines: list[str] = []
    output = ScriptOutput(mark="longboat-77aa", on_line=lines.append)
    whole = noise + b"longboat-77aa 12\n" + b"".join(pieces)
    for start in range(0, len(whole), 7):
        output.feed(whole[start : start + 7])
    output.close()
    text = b"".join(pieces).decode("utf-8", "replace")
    assert (output.text(), output.after_mark) == (text, "12")
    expected = b"".join(pieces).split(b"\n")
    if not expected[-1]:
        expected.pop()
    assert lines == [line.decode("utf-8", "replace") for line in expected]


def test_without_the_mark_everything_is_kept() -> None:
    output = ScriptOutput(mark="longboat-77aa")
    output.feed(b"This account is not available.\n")
    assert (output.text(), output.after_mark) == ("This account is not available.\n", None)


def test_output_is_bounded_and_says_so() -> None:
    output = ScriptOutput()
    for _ in range(40):
        output.feed(b"a" * 100_000)
    output.feed(b"end")
    text = output.text()
    assert len(text) < HEAD + TAIL + 100
    assert f"\n[... {4_000_003 - HEAD - TAIL} bytes left out ...]\n" in text
    assert text.endswith("aaaend")


def test_a_line_without_an_end_comes_in_pieces() -> None:
    lines: list[str] = []
    output = ScriptOutput(on_line=lines.append)
    for _ in range(100):
        output.feed(b"b" * 10_000)
    output.close()
    assert sum(map(len, lines)) == 1_000_000
    assert max(map(len, lines)) <= 64 << 10


def test_pieces_of_files_are_opened_when_their_turn_comes(tmp_path: Path) -> None:
    """A bundle has dozens of packages, and many hosts read it at once."""
    (tmp_path / "bundle").write_bytes(b"0123456789")
    parts = tuple(FilePart(path=tmp_path / "bundle", offset=start, size=2) for start in range(0, 10, 2))
    count = lambda: len(os.listdir("/proc/self/fd"))  # noqa: E731
    before = count()
    with scripts.chunks((b"x", *parts, tmp_path / "bundle"), b"first") as pieces:
        opened = [(piece, count() - before) for piece in pieces]
    assert b"".join(piece for piece, _ in opened) == b"firstx0123456789" + b"0123456789"
    assert max(number for _, number in opened) <= 1 and count() == before


def test_files_that_cannot_be_read_are_told_before_the_script_starts(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="missing cannot be read: No such file"):
        with scripts.chunks((b"x", FilePart(path=tmp_path / "missing", offset=0, size=1))):
            pytest.fail("it starts")
    (tmp_path / "short").write_bytes(b"1")
    with pytest.raises(EngineError, match="short cannot be read: it has become shorter"):
        with scripts.chunks((FilePart(path=tmp_path / "short", offset=0, size=2),)) as pieces:
            list(pieces)

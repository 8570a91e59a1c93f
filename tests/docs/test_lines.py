"""Lines of the documentation can be read where they do not wrap: in a diff, in an editor, on a terminal."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BELOW = 160


def pages() -> list[Path]:
    """All Markdown of the repository that is checked in, or about to be; docs/ alone where there is no git."""
    listing = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z", "*.md"]
    done = subprocess.run(listing, cwd=ROOT, capture_output=True, text=True, check=False)
    named = [ROOT / name for name in done.stdout.split("\0") if name]
    return sorted(page for page in named or [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")] if page.exists())


def long_lines(text: str) -> list[tuple[int, int]]:
    """Number and length of each line that is too long. A line that is one word, such as a URL, cannot be broken."""
    lines = enumerate(text.splitlines(), start=1)
    return [(number, len(line)) for number, line in lines if len(line) >= BELOW and len(line.split()) > 1]


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_no_line_is_too_long(page: Path) -> None:
    assert long_lines(page.read_text(encoding="utf-8")) == []


def test_a_row_of_a_table_and_a_block_of_code_count_too() -> None:
    row, address = "| `name` | " + "x" * BELOW + " |", "https://example.org/" + "x" * BELOW
    assert long_lines(f"{row}\n{address}\n```\n{row}\n```\n") == [(1, len(row)), (4, len(row))]

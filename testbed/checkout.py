"""This checkout as something to install: its files, what it depends on, and a key that changes with them."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def sources() -> list[Path]:
    """The files of the package."""
    files = (ROOT / "src" / "longboat").rglob("*")
    return sorted(path for path in files if path.is_file() and "__pycache__" not in path.parts)


def dependencies() -> list[str]:
    """As pyproject.toml lists them. Its own lines are read, because Python 3.10 reads no TOML."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    listed = re.search(r"^dependencies = \[\n(.*?)^\]", text, re.MULTILINE | re.DOTALL)
    assert listed is not None, "pyproject.toml has no dependencies"
    return re.findall(r'^  "([^"]+)",$', listed[1], re.MULTILINE)


def key() -> str:
    """Changes with what would be installed."""
    digest = hashlib.sha256("\n".join(dependencies()).encode())
    for path in sources():
        content = path.read_bytes()
        digest.update(f"\n{path.relative_to(ROOT)} {len(content)}\n".encode() + content)
    return digest.hexdigest()

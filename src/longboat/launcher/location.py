"""Where the launcher itself lies: a folder, or one zip file. Its entry point, and files of its own."""

from __future__ import annotations

import os

HERE = os.path.dirname(os.path.abspath(__file__))


def entry_point() -> str:
    """The path by which Python starts this launcher again."""
    return os.path.join(HERE, "__main__.py") if os.path.isdir(HERE) else HERE


def own_file(name: str) -> bytes:
    """Read a file of the launcher, also from a zip file."""
    path = os.path.join(os.path.dirname(__file__), name)
    loader = globals().get("__loader__")
    data: bytes = loader.get_data(path) if loader is not None else b""
    return data

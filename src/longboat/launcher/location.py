"""Where the launcher itself lies: a folder, or one zip file. Its entry point, and files of its own."""

from __future__ import annotations

import os

HERE = os.path.dirname(os.path.abspath(__file__))


def entry_point() -> str:
    """What Python has to be given to start this very launcher again."""
    return os.path.join(HERE, "__main__.py") if os.path.isdir(HERE) else HERE


def own_file(name: str) -> bytes:
    """The bytes of a file of the launcher, also when the launcher is one zip file."""
    path = os.path.join(os.path.dirname(__file__), name)
    loader = globals().get("__loader__")
    data: bytes = loader.get_data(path) if loader is not None else b""
    return data

"""A reader of job files in a folder of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.specs.reading import Reader


@pytest.fixture
def read(tmp_path: Path) -> Reader:
    folder = tmp_path / "project"
    folder.mkdir()
    return Reader(folder)

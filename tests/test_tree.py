"""The source tree: the rules that scripts/house.py checks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def problems(source: Path) -> str:
    command = [sys.executable, str(ROOT / "scripts" / "house.py"), str(source)]
    return subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL).stdout


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A small tree that keeps all rules."""
    write(tmp_path, "__init__.py", '"""Boats. No cars."""\n')
    return tmp_path


def write(folder: Path, name: str, text: str) -> None:
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_text(text)


def test_a_tree_that_keeps_the_rules_has_no_problems(source: Path) -> None:
    write(source, "rowing.py", "class Oar: ...\nclass _Part: ...\n")
    write(source, "sailing.py", "class Mast: ...\nclass _Part: ...\n")
    assert problems(source).strip() == ""


def test_a_class_name_is_used_once(source: Path) -> None:
    write(source, "rowing.py", "class Boat: ...\n")
    write(source, "sailing.py", "\nclass Boat: ...\n")
    assert "sailing.py:2: class Boat is defined in" in problems(source)


def test_a_folder_holds_a_dozen_modules_unless_listed(source: Path) -> None:
    for folder in ("boats", "cli/commands"):
        (source / folder).mkdir(parents=True)
        write(source, f"{folder}/__init__.py", '"""Boats. No cars."""\n')
        for number in range(14):
            write(source, f"{folder}/boat{number}.py", "")
    assert problems(source).splitlines() == [f"{source}/boats: 14 modules; a folder holds at most 13"]


@pytest.mark.parametrize(
    "text", ["", '"""Boats."""', '"""Boats. No cars.' + "\n" * 12 + '."""'], ids=["none", "one", "long"]
)
def test_a_folder_says_what_belongs_there(source: Path, text: str) -> None:
    write(source, "boats/__init__.py", text + "\n")
    assert "boats/__init__.py: its docstring says" in problems(source)


def test_nine_equal_lines_are_a_copy(source: Path) -> None:
    eight = "".join(f"row({number})\n" for number in range(8))
    write(source, "rowing.py", "import os\nimport sys\n\n" + eight + "sail()\n")
    write(source, "sailing.py", "import os\nimport sys\n\n" + eight + "row()\n")
    assert problems(source).strip() == ""
    write(source, "sailing.py", "# the same\n\n" + eight + "\nsail()\n")
    assert "sailing.py:3: 9 lines equal those of" in problems(source)

"""The pages for contributors name what there is: functions, classes, modules, and the picture of today's imports."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "longboat"
PAGES = ROOT / "docs" / "contributing"
PACKAGES = {entry.name for entry in SOURCE.iterdir() if (entry / "__init__.py").exists()}


def test_the_picture_and_the_table_are_current() -> None:
    script = ROOT / "scripts" / "architecture.py"
    told = subprocess.run([sys.executable, str(script), "--check"], capture_output=True, text=True)
    assert told.returncode == 0, told.stdout + told.stderr


@cache
def names_in(file: Path) -> dict[str, ast.AST]:
    """What a module defines at its top, and the methods of its classes as Class.method."""
    found: dict[str, ast.AST] = {}
    for node in ast.parse(file.read_text()).body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            found[node.name] = node
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        found |= {target.id: node for target in targets if isinstance(target, ast.Name)}
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{each.name}": each for each in node.body if isinstance(each, ast.FunctionDef)}
    return found


def exists(dotted: str) -> bool:
    """A folder, a module, or a name in one, by its path below src/longboat."""
    parts = dotted.split(".")
    for count in range(len(parts), 0, -1):
        path = SOURCE.joinpath(*parts[:count])
        if path.is_dir() or path.with_suffix(".py").exists():
            rest = ".".join(parts[count:])
            return not rest or (not path.is_dir() and rest in names_in(path.with_suffix(".py")))
    return False


def quoted(page: Path) -> set[str]:
    return set(re.findall(r"`([^`\n]+)`", page.read_text()))


@pytest.mark.parametrize("page", sorted(PAGES.glob("*.md")), ids=lambda page: page.name)
def test_functions_and_files_that_are_named_exist(page: Path) -> None:
    """Names of two parts only where the page is about them: elsewhere `launcher.json` is a file of a run."""
    depth = 1 if page.name == "architecture.md" else 2
    texts = quoted(page)
    dotted = {name for name in texts if re.fullmatch(rf"({'|'.join(PACKAGES)})(\.\w+){{{depth},}}", name)}
    files = {name for name in texts if re.fullmatch(r"\w+/[\w/]+\.py", name)}
    below = ("", "src/longboat", "src/longboat/engines/kubernetes", "src/longboat/autoscaler", "tests/autoscaler")
    missing = {name for name in dotted if not exists(name)}
    missing |= {name for name in files if not any((ROOT / folder / name).exists() for folder in below)}
    assert not missing, sorted(missing)


def test_every_step_of_a_run_names_a_function() -> None:
    steps = re.findall(r"^\| \d+\. .*$", (PAGES / "architecture.md").read_text(), re.M)
    assert len(steps) == 10
    for step in steps:
        local, cluster = step.split("|")[2:4]
        assert re.search(r"`\w+\.[\w.]+`", local), step
        assert re.search(r"`\w+\.[\w.]+`", cluster) or "the same" in cluster, step


def test_sixty_behaviours_have_one_function_each() -> None:
    rows = re.findall(r"^\| (.+) \| `([\w.]+)` \|$", (PAGES / "where.md").read_text(), re.M)
    assert len(rows) >= 60
    assert len({function for _, function in rows}) == len(rows)
    assert [function for _, function in rows if not exists(function)] == []


def test_classes_of_the_glossary_exist() -> None:
    classes = {
        name for file in SOURCE.rglob("*.py") for name, node in names_in(file).items() if isinstance(node, ast.ClassDef)
    }
    rows = re.findall(r"^\|.*\|(.*)\|$", (PAGES / "glossary.md").read_text(), re.M)
    named = set(re.findall(r"`(\w+)`", " ".join(rows)))
    assert len(named) > 40
    assert named <= classes, sorted(named - classes)

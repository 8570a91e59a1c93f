"""Editable installs: what is imported is the snapshot."""

from __future__ import annotations

from pathlib import Path

import pytest

from longboat.engines.local.submit.editable_installs import mapped_parents, source_folders
from longboat.engines.local.supervise.attempt_folders import python_path
from tests.bundles.trees import make
from tests.engines.local.conftest import LocalJobs

FINDER = """\
from __future__ import annotations
MAPPING: dict[str, str] = {'pkg': '%s/lib/pkg', 'renamed': '%s/other'}
NAMESPACES: dict[str, list[str]] = {}
"""


def environment_with(tmp_path: Path, files: dict[str, str]) -> dict[str, str]:
    """A virtual environment with these files among its packages."""
    make(tmp_path / "venv", {"bin/python": "", "lib/python3.11/site-packages/x": ""})
    (tmp_path / "venv/bin/python").chmod(0o755)
    make(tmp_path / "venv/lib/python3.11/site-packages", files)
    return {"PATH": str(tmp_path / "venv/bin"), "HOME": str(tmp_path / "home")}


PATHS = {"src/pkg/__init__.py", "lib/pkg/__init__.py", "train.py"}


@pytest.mark.parametrize(
    ("files", "folders"),
    [
        ({}, ()),
        ({"__editable__.pkg.pth": "ROOT/src\n"}, ("src",)),
        ({"pkg.pth": "ROOT\nimport os; x = 1\n/elsewhere\n"}, (".",)),
        ({"__editable___pkg_finder.py": FINDER % ("ROOT", "ROOT")}, ("lib",)),
        ({"pkg.pth": "ROOT/ignored\n"}, ()),  # not in the snapshot
        ({"broken.pth": "ROOT/src/\0\n", "__editable__x_finder.py": "MAPPING = {1: }\n"}, ()),
    ],
)
def test_what_is_installed_from_the_project(tmp_path: Path, files: dict[str, str], folders: tuple[str, ...]) -> None:
    root = str(tmp_path / "project")
    given = environment_with(tmp_path, {name: text.replace("ROOT", root) for name, text in files.items()})
    assert source_folders(root, None, PATHS, given) == folders


def test_pythonpath_and_setup(tmp_path: Path) -> None:
    root = str(tmp_path / "project")
    given = {"PATH": "", "PYTHONPATH": f"{root}/lib:src:/elsewhere"}
    assert source_folders(root, "pip install -e .[dev] torch", PATHS, given) == ("lib", "src")
    assert source_folders(root, "pip install --editable=./lib", PATHS, {"PATH": ""}) == ("lib",)
    path = python_path(given["PYTHONPATH"], root, "/work", ("lib", "."))
    assert path == "/work/lib:src:/elsewhere:/work"


def test_a_finder_that_is_no_finder() -> None:
    for text in ("", "MAPPING = [1]", "MAPPING: dict = {'a': 1}", "MAPPING = {'a': f()}"):
        assert mapped_parents(text) == []


@pytest.mark.parametrize(
    "value", ["-" * 100_000 + "1", "1" + "+1" * 100_000, "not " * 100_000 + "1", "(" * 10_000, "1" * 10_000]
)
def test_a_finder_that_nobody_can_read(value: str) -> None:
    assert mapped_parents(f"MAPPING = {{'a': {value}}}") == []


def test_a_finder_with_odd_places(tmp_path: Path) -> None:
    text = r"MAPPING = {b'mine': b'/x/mine', 'mine': '/x\0/mine', 'own': 'own'}"
    given = environment_with(tmp_path, {"__editable___mine_finder.py": text})
    assert source_folders(str(tmp_path / "project"), None, PATHS, given) == ()


def test_a_run_imports_its_snapshot(local: LocalJobs, tmp_path: Path) -> None:
    """The package lies in `src`, and the Python of the shell finds it in the project's own folder."""
    root = make(tmp_path / "code", {"src/mine/__init__.py": ""})
    shell = {**local.place.environment, "PYTHONPATH": f"{root}/src"}
    run = local.run("import mine; print(mine.__file__)", environment=shell)
    assert run.phase == "succeeded", local.text(run.name)
    work = local.files(run.name).attempt_dir(0) / "worker-0" / "work"
    assert local.text(run.name).strip() == str(work / "src" / "mine" / "__init__.py")

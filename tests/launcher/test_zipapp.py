"""The launcher as a folder, as one file, and on every Python that is here."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import longboat
from longboat.launcher import vendored
from longboat.launcher.zipapp import (
    with_less_indent,
    without_docstrings,
    without_results,
    without_types,
    write_zipapp,
)
from tests.launcher.nodes import LAUNCHER, Node
from tests.launcher.starters.test_torchrun_worker import torchrun_node

Make = Callable[..., Node]
PACKAGE = Path(longboat.__file__).parent


def interpreters() -> list[str]:
    """One of each version of Python >= 3.8 that can be found."""
    found: dict[str, str] = {}
    folders = os.environ.get("PATH", "").split(":")
    versions = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    folders += [str(path / "bin") for path in sorted(versions.glob("3.*"))]
    for minor in range(8, 16):
        for folder in folders:
            path = os.path.join(folder, f"python3.{minor}")
            if os.access(path, os.X_OK) and "/shims/" not in path:
                found.setdefault(f"3.{minor}", path)
    return sorted(found.values(), key=lambda path: int(path.rpartition(".")[2])) or [sys.executable]


@pytest.fixture(scope="session")
def zipapp_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("one file") / "launcher.pyz"
    write_zipapp(str(path))
    return path


def test_what_is_carried_imports_only_what_is_carried() -> None:
    """A module of ours that the launcher does not carry is not there in a pod."""
    carried = {name.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for name in vendored.FILES}
    for file in vendored.FILES:
        body = ast.parse((PACKAGE / file).read_text()).body  # what is imported later, in functions, is for others
        wanted = [node.module for node in body if isinstance(node, ast.ImportFrom) and node.module]
        ours = [name.removeprefix("longboat.") for name in wanted if name.startswith("longboat.")]
        assert set(ours) <= carried | {"launcher"}, file


def statements(tree: ast.Module) -> list[tuple[type[ast.stmt], int]]:
    return [(type(node), node.lineno) for node in ast.walk(tree) if isinstance(node, ast.stmt)]


def test_docstrings_are_left_out_and_every_line_stays_where_it_was() -> None:
    for file in [*sorted((PACKAGE / "launcher").rglob("*.py")), *(PACKAGE / name for name in vendored.FILES)]:
        source = file.read_bytes()
        trees = ast.parse(source), ast.parse(without_docstrings(source))
        for node in ast.walk(trees[0]):
            value = node.value if isinstance(node, ast.Expr) else None
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                value.value = ""
        assert ast.dump(trees[0]) == ast.dump(trees[1]), file
        assert statements(trees[0]) == statements(trees[1]), file
    text = b'def f():\n    """One\n    two."""\nX = """kept\n"""\nY = 1\n"""Of Y."""  # why\n'
    assert without_docstrings(text) == b'def f():\n    ""\n\nX = """kept\n"""\nY = 1\n""  # why\n'
    argument = b'f(\n    """kept""",\n    """also\n    kept""",\n)\n'
    assert without_docstrings(argument) == argument


def test_imports_for_types_alone_are_left_out_and_every_line_stays_where_it_was() -> None:
    for file in [*sorted((PACKAGE / "launcher").rglob("*.py")), *(PACKAGE / name for name in vendored.FILES)]:
        source = file.read_bytes()
        trees = ast.parse(source), ast.parse(without_types(source))
        for tree in trees:
            for node in tree.body:
                if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
                    node.body = [ast.Pass()]
        assert ast.dump(trees[0]) == ast.dump(trees[1]), file
        assert len(source.splitlines()) == len(without_types(source).splitlines()), file
    text = b"if TYPE_CHECKING:\n    import a\n\n    import b\nelse:\n    import c\nX = 1\n    # kept\n"
    assert without_types(text) == b"if TYPE_CHECKING:\n    pass\n\n\nelse:\n    import c\nX = 1\n    # kept\n"


def test_what_functions_return_is_left_out_and_every_line_stays_where_it_was() -> None:
    kept = 0
    for file in [*sorted((PACKAGE / "launcher").rglob("*.py")), *(PACKAGE / name for name in vendored.FILES)]:
        source = file.read_bytes()
        trees = ast.parse(source), ast.parse(without_results(source))
        for node in ast.walk(trees[0]):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                node.returns = None
        kept += sum(bool(getattr(node, "returns", None)) for node in ast.walk(trees[1]))
        for node in ast.walk(trees[1]):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                node.returns = None
        assert ast.dump(trees[0]) == ast.dump(trees[1]), file
        assert statements(trees[0]) == statements(trees[1]), file
    assert kept < 20
    text = b"def f(\n    a: int,\n) -> dict[str, int]:\n    x = (1) -> 2\n"
    assert without_results(text) == b"def f(\n    a: int,\n):\n    x = (1) -> 2\n"


SCRIPT = """
import os, sys, time
import longboat
for n in range(3):
    longboat.step(n, loss=1.0)
os.write(1, b"x" * 300000 + b"\\n")
print(longboat.rank(), file=sys.stderr)
if longboat.rank() == 0:
    open("written", "w").close()
while not os.path.exists("written"):
    time.sleep(0.01)
if longboat.rank() == 1:
    raise ValueError("bad")
"""


@pytest.mark.parametrize("python", interpreters())
def test_runs_on_this_python(make_node: Make, zipapp_file: Path, python: str) -> None:
    for launcher in (LAUNCHER, zipapp_file):
        node = make_node([python, "train.py"], procs=2, setup="echo prepared", echo=True)
        node.script(SCRIPT)
        assert node.run(python=python, launcher=launcher, stdout=subprocess.DEVNULL) == 1
        assert node.outcome["message"] == "ValueError: bad"
        assert node.log("0.out") == node.log("1.out") == b"x" * 300000 + b"\n"
        assert node.report(1)["step"] == 2
        assert node.log("setup.out") == b"prepared\n"


@pytest.mark.parametrize("python", interpreters())
def test_stand_in_on_this_python(make_node: Make, zipapp_file: Path, python: str) -> None:
    node = torchrun_node(make_node, "import os, sys\nsys.exit(7 if os.environ['RANK'] == '6' else 0)\n", python=python)
    assert node.run(python=python, launcher=zipapp_file) == 7


def test_as_a_folder(make_node: Make) -> None:
    node = make_node("echo hi")
    assert node.run(launcher=LAUNCHER.parent) == 0
    assert node.log() == b"hi\n"


def test_the_same_bytes_every_time(zipapp_file: Path, tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "longboat.launcher.zipapp", str(tmp_path / "again")], check=True)
    assert (tmp_path / "again").read_bytes() == zipapp_file.read_bytes()


def test_start_up_imports_little(make_node: Make) -> None:
    """Every one of these costs milliseconds on the way to a user's first log line."""
    node = make_node(["true"])
    node.start()
    node.wait()
    plan = str(node.folder / "plan.json")
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-X", "importtime", str(LAUNCHER), plan], capture_output=True, check=True
    )
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.decode().splitlines()}
    assert "longboat_launcher.node" in loaded
    slow = {
        "re",
        "json",
        "enum",
        "signal",
        "subprocess",
        "typing",
        "socket",
        "threading",
        "ctypes",
        "tempfile",
        "shutil",
    }
    assert loaded & (slow | {"dataclasses", "argparse", "collections", "logging", "selectors", "functools"}) == set()


def test_less_indent_changes_no_meaning_and_no_line() -> None:
    for file in [*sorted((PACKAGE / "launcher").rglob("*.py")), *(PACKAGE / name for name in vendored.FILES)]:
        source = without_types(without_docstrings(file.read_bytes()))
        packed = with_less_indent(source)
        assert len(source.splitlines()) == len(packed.splitlines()), file
        if b"TYPE_CHECKING" in packed or b"TYPE_CHECKING" not in source:
            assert ast.dump(ast.parse(source)) == ast.dump(ast.parse(packed)), file
    assert with_less_indent(b"if a:\n    f(\n        b\n    )\n") == b"if a:\n f(\n  b\n )\n"

"""Which Python the ranks run and what is installed for it, without starting it."""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
import venv
from collections.abc import Callable
from pathlib import Path

import pytest

from longboat.launcher.sampling.packages import python_of, software
from longboat.metrics.series_file import join, parse
from tests.launcher.nodes import Node


def installed(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).mkdir(parents=True)


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """A virtual environment with two packages."""
    folder = tmp_path / "env"
    venv.create(folder, with_pip=False)
    site = next(folder.glob("lib/python3*/site-packages"))
    installed(site, "numpy-2.1.0.dist-info", "numpy", "PyYAML-6.0.1-py3.11.egg-info", "broken.dist-info")
    return folder


def test_the_packages_of_a_virtual_environment_are_those_that_it_imports(environment: Path) -> None:
    env = {"PATH": f"{environment}/bin:/usr/bin:/bin"}
    for command in (
        "python train.py",
        ["python3", "train.py"],
        f"cd x && {environment}/bin/python -u train.py",
        ["make"],
    ):
        assert software(command, env, "/") == {
            "python": f"python3.{sys.version_info.minor}",
            "packages": {"numpy": "2.1.0", "PyYAML": "6.0.1"},
        }
    more = environment.parent / "more"
    installed(more, "numpy-9.dist-info", "extra-1.dist-info")
    told = software("python train.py", {**env, "PYTHONPATH": str(more)}, "/")["packages"]
    assert (told["numpy"], told["extra"]) == ("9", "1"), "PYTHONPATH comes first"


def test_a_program_of_an_environment_runs_its_python(environment: Path, tmp_path: Path) -> None:
    program = environment / "bin" / "torchrun"
    program.write_text(f"#!{environment}/bin/python3\nimport x\n")
    program.chmod(0o755)
    assert python_of(["torchrun", "train.py"], f"{environment}/bin", "/") == f"{environment}/bin/python3"
    program.write_text("#!/usr/bin/env python3\n")
    assert python_of(["./env/bin/torchrun"], f"{environment}/bin", str(tmp_path)) == f"{environment}/bin/python3"
    for words in ([], ["true"], ["/nowhere/torchrun"]):
        assert python_of(words, "/nowhere", "/") == ""
        assert software(words, {}, "/") == {}


def test_a_script_that_is_called_python_is_none_and_the_process_tells(environment: Path, tmp_path: Path) -> None:
    shims = tmp_path / "shims"
    shims.mkdir()
    (shims / "python").write_text("#!/bin/sh\nexec something else\n")
    (shims / "python").chmod(0o755)
    assert software("python train.py", {"PATH": str(shims)}, "/") == {}
    told = software("python train.py", {"PATH": str(shims)}, "/", [os.getpid()])
    assert told["python"] == f"python3.{sys.version_info.minor}"


def test_what_is_told_is_what_the_interpreter_says() -> None:
    """Of the Python of these tests, whatever it is."""
    listed = software([sys.executable, "x.py"], dict(os.environ), "/")["packages"]
    program = "import importlib.metadata as m; print(*{d.metadata['Name'] for d in m.distributions()})"
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    canonical = {name.lower().replace("-", "_").replace(".", "_") for name in said}
    assert canonical <= {name.lower().replace(".", "_") for name in listed} | {"longboat"}
    assert listed["pytest"] == importlib.metadata.version("pytest")


def test_a_run_tells_what_it_ran_in(make_node: Callable[..., Node], environment: Path) -> None:
    node = make_node([f"{environment}/bin/python", "train.py"])
    node.script("import longboat\nlongboat.step(1, loss=1.0)\n")
    assert node.run() == 0
    data = (node.directory / "metrics.jsonl").read_bytes()
    told = join("r", [parse(data, node="worker-0", attempt=0)]).software
    assert told.packages == {"numpy": "2.1.0", "PyYAML": "6.0.1"} and told.python.startswith("python3")

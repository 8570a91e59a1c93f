"""The house itself: what is installed, the layers, the scripts behind `make`, the figures that the documents quote."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # pytest brings it there

ROOT = Path(__file__).resolve().parents[1]
INSTALLERS = {"pip", "setuptools", "wheel"}


def run(*command: str, cwd: Path = ROOT, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, stdin=subprocess.DEVNULL)


@pytest.mark.slow
def test_core_install_is_small_and_has_the_command(tmp_path: Path) -> None:
    wheels, venv, source = tmp_path / "wheels", tmp_path / "venv", tmp_path / "source"
    # A build leaves files beside the sources, and takes along what an earlier one left there.
    shutil.copytree(ROOT / "src", source / "src", ignore=shutil.ignore_patterns("*.egg-info", "__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    built = run(sys.executable, "-m", "pip", "wheel", "--quiet", "--wheel-dir", str(wheels), "--no-deps", str(source))
    assert built.returncode == 0, built.stderr
    (wheel,) = wheels.glob("longboat-*.whl")
    assert run(sys.executable, "-m", "venv", str(venv)).returncode == 0
    python = str(venv / "bin" / "python")
    done = run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile", str(wheel))
    assert done.returncode == 0, done.stderr

    listed = run(python, "-m", "pip", "list", "--format", "json", "--disable-pip-version-check")
    names = {row["name"].lower() for row in json.loads(listed.stdout)} - INSTALLERS
    assert "longboat" in names
    assert len(names) <= 16, sorted(names)
    assert size_without_installers(venv) <= 15e6

    clean = {**os.environ, "PYTHONPATH": "", "LONGBOAT_HOME": str(tmp_path / "home")}
    by_command = run(str(venv / "bin" / "longboat"), "--version", cwd=tmp_path, env=clean)
    by_module = run(python, "-m", "longboat", "--version", cwd=tmp_path, env=clean)
    assert by_command.returncode == by_module.returncode == 0, by_command.stderr + by_module.stderr
    assert version() in by_command.stdout
    assert version() in by_module.stdout

    # What a source tree has by luck: files that are not Python, and the launcher with the trainers' package.
    command = (str(venv / "bin" / "longboat"), "run", "--", python, "-c", "import longboat; longboat.step(1)")
    ran = run(*command, cwd=tmp_path, env=clean)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def size_without_installers(venv: Path) -> int:
    site = next((venv / "lib").glob("python3*/site-packages"))
    theirs = re.compile(r"(pip|setuptools|wheel|pkg_resources|_distutils_hack)\b|distutils-")
    ours = [entry for entry in site.iterdir() if not theirs.match(entry.name)]
    files = [file for entry in ours for file in ([entry] if entry.is_file() else entry.rglob("*")) if file.is_file()]
    return sum(file.stat().st_size for file in files)


def version() -> str:
    return str(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"])


def test_every_package_has_its_layer() -> None:
    """A new package that no contract mentions would be free to import anything."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    named = set(re.findall(r"\w+", " ".join(contracts[0]["layers"]))) | {"launcher"}
    packages = {entry.parent.name for entry in (ROOT / "src" / "longboat").glob("*/__init__.py")}
    assert packages <= named


def test_version_is_told_once() -> None:
    told = run(sys.executable, "-m", "longboat", "--version")
    assert version() in told.stdout, told.stderr


def script(name: str, *arguments: str, path: Path) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PATH": f"{path}:/usr/bin:/bin"}
    return run("sh", str(ROOT / "scripts" / name), *arguments, env=env)


def stand_in(folder: Path, name: str, body: str) -> None:
    file = folder / name
    file.write_text(f"#!/bin/sh\n{body}\n")
    file.chmod(0o755)


def test_missing_packages_are_named_with_the_command_unless_root(tmp_path: Path) -> None:
    stand_in(tmp_path, "id", "echo 1000")
    stand_in(tmp_path, "dpkg-query", '[ "$4" = there ] && echo "install ok installed"')
    stand_in(tmp_path, "apt-get", 'echo "apt-get was called" >&2; exit 1')
    assert script("packages.sh", "there", path=tmp_path).returncode == 0
    told = script("packages.sh", "there", "not-there", "nor-this", path=tmp_path)
    assert told.returncode == 1
    assert told.stderr == "error: missing system packages; type: sudo apt-get install -y not-there nor-this\n"


def test_root_installs_and_says_when_the_network_is_missing(tmp_path: Path) -> None:
    stand_in(tmp_path, "id", "echo 0")
    stand_in(tmp_path, "dpkg-query", "exit 1")
    stand_in(tmp_path, "apt-get", f'echo "$*" >>"{tmp_path}/calls"; [ -e "{tmp_path}/online" ]')
    offline = script("packages.sh", "some-package", path=tmp_path)
    assert offline.returncode == 1
    last = offline.stderr.splitlines()[-1]
    assert last == "error: apt-get could not install: some-package (is the network reachable?)"
    assert (tmp_path / "calls").read_text().splitlines()[1] == "update"
    (tmp_path / "online").touch()
    assert script("packages.sh", "some-package", path=tmp_path).returncode == 0


def test_a_package_name_cannot_be_an_option(tmp_path: Path) -> None:
    assert "not a package name" in script("packages.sh", "a;b", path=tmp_path).stderr


def test_no_python_is_told_in_one_line(tmp_path: Path) -> None:
    names = ["python3", *(f"python3.{minor}" for minor in range(10, 14))]
    for name in names:
        stand_in(tmp_path, name, "exit 1")
    (tmp_path / "scripts").mkdir()
    shutil.copy(ROOT / "scripts" / "environment.sh", tmp_path / "scripts")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    env = {**os.environ, "PATH": f"{tmp_path}:/usr/bin:/bin"}
    told = run("sh", str(tmp_path / "scripts" / "environment.sh"), "examples", env=env)
    assert told.returncode == 1
    assert told.stderr.startswith("error: no Python >= 3.10 found;")
    assert len(told.stderr.splitlines()) == 1


def test_grammar_check_finds_new_syntax(tmp_path: Path) -> None:
    shutil.copytree(
        ROOT / "src" / "longboat", tmp_path / "src" / "longboat", ignore=shutil.ignore_patterns("__pycache__")
    )
    launcher = tmp_path / "src" / "longboat" / "launcher"
    (tmp_path / "scripts").mkdir()
    checker = tmp_path / "scripts" / "grammar.py"
    checker.write_text((ROOT / "scripts" / "grammar.py").read_text())
    assert run(sys.executable, str(checker)).returncode == 0
    (launcher / "new.py").write_text("match 1:\n    case 1: pass\n")
    found = run(sys.executable, str(checker))
    assert found.returncode == 1
    assert "new.py:2: not Python 3.8" in found.stdout


def test_documents_quote_the_measured_results() -> None:
    spec = importlib.util.spec_from_file_location("bench_run", ROOT / "bench" / "run.py")
    assert spec and spec.loader
    bench = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(bench)
    page = bench.DOCS.read_text()
    assert page == bench.with_tables(page, json.loads(bench.RESULTS.read_text())), "run: python bench/run.py --docs"


def test_links_in_documents_lead_somewhere() -> None:
    broken = []
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")]
    for page in pages:
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text()):
            if not re.match(r"[a-z]+:", target) and not (page.parent / target).exists():
                broken.append(f"{page.relative_to(ROOT)}: {target}")
    assert not broken


def anchors(page: Path) -> set[str]:
    """What headings of a page are linked by, as GitHub makes it: `## The gate, explained` is `the-gate-explained`."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    titles = [re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", title) for title in re.findall(r"^#+ (.*)$", text, re.MULTILINE)]
    return {re.sub(r"[^\w\- ]", "", title.strip().lower()).replace(" ", "-") for title in titles}


def test_links_into_a_page_lead_to_a_heading() -> None:
    broken = []
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")]:
        for target, anchor in re.findall(r"\]\(([^)#\s:]*)#([^)\s]+)\)", page.read_text()):
            there = page.parent / target if target else page
            if there.suffix == ".md" and anchor not in anchors(there):
                broken.append(f"{page.relative_to(ROOT)}: {target}#{anchor}")
    assert not broken


def test_every_page_is_in_the_index() -> None:
    docs = ROOT / "docs"
    indexed = set(re.findall(r"\]\(([^)#]+)\)", (docs / "README.md").read_text()))
    pages = {str(page.relative_to(docs)) for page in docs.rglob("*.md")} - {"README.md"}
    assert pages <= indexed, sorted(pages - indexed)


SESSION = """
import subprocess, pytest

@pytest.mark.frameworks
def test_skipped():
    pytest.skip("not here")

def test_fine(home):
    assert home.is_dir()
"""
LEAVES = """
import subprocess
def test_leaves(home):
    subprocess.Popen(["sleep", "1000"], start_new_session=True)
"""


def session(folder: Path, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    """A pytest session of its own under this conftest."""
    rules = (ROOT / "tests" / "conftest.py").read_text().replace("LEAVING_S = 10.0", "LEAVING_S = 0.2")
    (folder / "conftest.py").write_text(rules)
    (folder / "soak.txt").write_text("tests/none.py::test_none\n")
    env = {key: value for key, value in os.environ.items() if not key.startswith(("LONGBOAT_TEST", "PYTEST"))}
    options = ("-c", str(ROOT / "pyproject.toml"), "--rootdir", str(folder), "-p", "no:cacheprovider")
    return run(sys.executable, "-m", "pytest", *options, *arguments, cwd=folder, env={**env, **more})


@pytest.mark.parametrize("workers", [(), ("-n", "1")], ids=["plain", "xdist"])
def test_skips_are_told_and_may_be_forbidden(tmp_path: Path, workers: tuple[str, ...]) -> None:
    (tmp_path / "test_it.py").write_text(SESSION)
    allowed = session(tmp_path, *workers, str(tmp_path))
    assert allowed.returncode == 0, allowed.stdout
    assert "skipped frameworks: not here (1)" in allowed.stdout
    forbidden = session(tmp_path, *workers, str(tmp_path), LONGBOAT_TEST_REQUIRE="frameworks")
    assert forbidden.returncode == 1
    assert "LONGBOAT_TEST_REQUIRE names frameworks: not here" in forbidden.stdout
    unknown = session(tmp_path, *workers, str(tmp_path), LONGBOAT_TEST_REQUIRE="framework")
    assert unknown.returncode == 4


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="processes are found through /proc")
@pytest.mark.parametrize("workers", [(), ("-n", "1")], ids=["plain", "xdist"])
def test_a_process_left_behind_is_killed_and_fails_the_session(tmp_path: Path, workers: tuple[str, ...]) -> None:
    (tmp_path / "test_it.py").write_text(LEAVES)
    left = session(tmp_path, *workers, str(tmp_path))
    assert left.returncode == 1, left.stdout
    (pid,) = re.findall(r"left behind, killed: pid (\d+), LONGBOAT_HOME=\S+/home: sleep 1000", left.stdout)
    assert not Path(f"/proc/{pid}").exists() or "State:\tZ" in Path(f"/proc/{pid}/status").read_text()


def test_every_line_of_the_soak_list_names_a_test() -> None:
    lines = [line for line in (ROOT / "tests" / "soak.txt").read_text().splitlines() if line and line[0] != "#"]
    assert lines == list(dict.fromkeys(lines))
    for line in lines:
        file, *_, name = line.split("::")
        assert f"def {name.partition('[')[0]}(" in (ROOT / file).read_text(), line

"""The examples of README.md and docs/*.md are true.

Each page is run in a folder of its own that holds a copy of `examples/`. A `python` or `yaml` block whose first line is
`# NAME` is that file. In a `console` block every `$ ` line is run by bash. It must end with 0, unless `$ echo $?`
follows. Lines shown below it must be in its output (stdout and stderr), in that order and next to each other; `...`
stands for any text within a line and, alone, for any lines. A command with no lines below it may print anything.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sysconfig
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILE_NAME = re.compile(r"# ([\w-]+\.(?:py|yaml|sh))")


class Command(NamedTuple):
    text: str
    shown: list[str]
    may_fail: bool


def blocks(page: Path) -> list[tuple[str, str]]:
    return BLOCK.findall(page.read_text(encoding="utf-8"))


def commands(block: str) -> list[Command]:
    found: list[Command] = []
    for line in block.splitlines():
        if line.startswith("$ "):
            if line == "$ echo $?" and found:
                found[-1] = found[-1]._replace(may_fail=True)
            found.append(Command(line[2:], [], False))
        else:
            found[-1].shown.append(line)
    return found


def pattern(shown: list[str]) -> str:
    """A pattern over whole lines."""
    parts = []
    for line in shown:
        if line == "...":
            parts.append(r"(?:[^\n]*\n)*?")
        else:
            parts.append(r"[^\n]*".join(re.escape(piece) for piece in line.split("...")) + r"\n")
    return r"(?:^|(?<=\n))" + "".join(parts)


def script(found: list[Command]) -> str:
    """All commands of a block in one shell, so that `$?` is that of the command before; each one's end is marked."""
    lines = ["exec 2>&1"]
    for command in found:
        lines += [command.text, "status=$?", r'printf "\000%s\000" "$status"', "(exit $status)"]
    return "\n".join(lines)


def run_block(block: str, folder: Path, environment: dict[str, str]) -> None:
    found = commands(block)
    bash = ["bash", "-c", script(found)]
    done = subprocess.run(
        bash, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=False
    )
    pieces = done.stdout.decode("utf-8", "replace").split("\0")
    for number, command in enumerate(found):
        output, status = pieces[2 * number], pieces[2 * number + 1]
        assert command.may_fail or status == "0", f"{command.text}: exit code {status}\n{output}"
        if command.shown:
            assert re.search(pattern(command.shown), output), f"{command.text} printed\n{output}"


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if any(kind == "console" for kind, _ in blocks(page))],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_examples(page: Path, home: Path, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    shutil.copytree(ROOT / "examples", folder / "examples", ignore=shutil.ignore_patterns("__pycache__", "checkpoints"))
    scripts = sysconfig.get_path("scripts")
    environment = {**os.environ, "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}", "NO_COLOR": "1"}
    try:
        for kind, text in blocks(page):
            if kind == "console":
                run_block(text, folder, environment)
            elif name := FILE_NAME.match(text):
                (folder / name[1]).write_text(text)
    finally:
        subprocess.run([f"{scripts}/longboat", "rm", "--all", "--force", "--yes"], env=environment, check=True)


def test_every_command_has_its_section() -> None:
    from longboat.cli.main import TABLE

    text = (ROOT / "docs" / "cli.md").read_text()
    assert [name for name in TABLE if f"\n## {name}\n" not in text] == []


def test_every_exit_code_of_ours_is_in_the_table() -> None:
    from longboat.core import errors

    codes = {value for name, value in vars(errors).items() if name.endswith("_EXIT")}
    codes |= {kind.exit_code for kind in vars(errors).values() if isinstance(kind, type) and hasattr(kind, "exit_code")}
    table = (ROOT / "docs" / "exit-codes.md").read_text()
    assert {int(code) for code in re.findall(r"^\| (2\d\d) ", table, re.MULTILINE)} == codes


def test_a_wrong_example_is_noticed(tmp_path: Path) -> None:
    environment = dict(os.environ)
    run_block("$ printf 'a\\nb b\\nc\\n'\nb ...\nc\n$ false\n$ echo $?\n1\n", tmp_path, environment)
    skipped = "$ printf 'a\\nb\\nc\\n'\na\nc\n"
    for wrong in ("$ false\n", "$ echo a\nb\n", skipped, "$ echo ab\nb\n", "$ true\n$ echo $?\n1\n"):
        with pytest.raises(AssertionError):
            run_block(wrong, tmp_path, environment)

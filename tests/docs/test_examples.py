"""The examples of README.md and docs/*.md are true.

Each page is run in a folder of its own that holds a copy of `examples/`. A `python` or `yaml` block whose first line is
`# NAME` is that file. In a `console` block every `$ ` line is run by bash. It must end with 0, unless `$ echo $?`
follows. Lines shown below it must be in its output (stdout and stderr), in that order and next to each other; `...`
stands for any text within a line and, alone, for any lines. A command with no lines below it may print anything.

docs/kubernetes.md is run on the test cluster, in a namespace of its own: its context is called `lab`, kubectl is there,
and the node has the image `python:3.12-slim`. Recipes and the cheat sheet are run on test hosts
(tests/clusters/test_recipes.py); here their commands are only parsed, but for those of this machine.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sysconfig
from pathlib import Path
from typing import NamedTuple

import click
import pytest

from testbed import binaries, clusters, images, namespaces, node
from testbed.clusters import Cluster
from testbed.fixtures import Kubectl

ROOT = Path(__file__).resolve().parents[2]
ON_CLUSTER = ROOT / "docs" / "kubernetes.md"
DISTRIBUTED_CNN = ROOT / "docs" / "recipes" / "distributed-cnn.md"
"""Needs TensorFlow: run by tests/frameworks/test_distributed_cnn.py."""
RECIPES = sorted(
    set((ROOT / "docs" / "recipes").glob("*.md")) - {ROOT / "docs" / "recipes" / "sweep.md", DISTRIBUTED_CNN}
)
"""Those that need hosts."""
CHEAT_SHEET = ROOT / "docs" / "cheatsheet.md"
PAGES = sorted({ROOT / "README.md", *(ROOT / "docs").rglob("*.md")} - {*RECIPES, DISTRIBUTED_CNN})
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
    bash = ["bash", "-c", script(commands(block))]
    done = subprocess.run(
        bash, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=False
    )
    compare(block, done.stdout)


def compare(block: str, printed: bytes) -> None:
    """What the block's script printed with what the page shows."""
    found = commands(block)
    pieces = printed.decode("utf-8", "replace").split("\0")
    for number, command in enumerate(found):
        output, status = pieces[2 * number], pieces[2 * number + 1]
        assert command.may_fail or status == "0", f"{command.text}: exit code {status}\n{output}"
        if command.shown:
            assert re.search(pattern(command.shown), output), f"{command.text} printed\n{output}"


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if page != ON_CLUSTER and any(kind == "console" for kind, _ in blocks(page))],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_examples(page: Path, home: Path, tmp_path: Path) -> None:
    scripts = sysconfig.get_path("scripts")
    environment = {**os.environ, "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}", "NO_COLOR": "1"}
    try:
        run_page(page, tmp_path / "folder", environment)
    finally:
        subprocess.run([f"{scripts}/longboat", "rm", "--all", "--force", "--yes"], env=environment, check=True)


def cheats() -> list[str]:
    """The Longboat side of the cheat sheet, row by row."""
    return re.findall(r"^\| .* \| `(longboat [^`]+)` \|$", CHEAT_SHEET.read_text(encoding="utf-8"), re.MULTILINE)


@pytest.mark.parametrize("page", [*RECIPES, CHEAT_SHEET], ids=lambda page: page.name)
def test_commands_that_need_hosts_can_be_typed(page: Path) -> None:
    if page == CHEAT_SHEET:
        lines = cheats()
    else:
        lines = [each.text for kind, text in blocks(page) if kind == "console" for each in commands(text)]
    lines = [line for line in lines if line.startswith("longboat ")]
    assert lines
    for line in lines:
        parse_command(shlex.split(line)[1:])


def parse_command(words: list[str]) -> None:
    """Raises for a command or an option that does not exist."""
    from longboat.cli.main import cli

    command: click.Command = cli
    while isinstance(command, click.Group):
        context = click.Context(command)
        found = command.get_command(context, words[0])
        assert found is not None, words
        command, words = found, words[1:]
    command.make_parser(click.Context(command)).parse_args(words)


def run_page(page: Path, folder: Path, environment: dict[str, str]) -> None:
    shutil.copytree(ROOT / "examples", folder / "examples", ignore=shutil.ignore_patterns("__pycache__", "checkpoints"))
    for kind, text in blocks(page):
        if kind == "console":
            run_block(text, folder, environment)
        elif name := FILE_NAME.match(text):
            (folder / name[1]).write_text(text)


@pytest.mark.pods
@pytest.mark.slow
def test_examples_on_a_cluster(cluster: Cluster, namespace: str, kubectl: Kubectl, home: Path, tmp_path: Path) -> None:
    give_image(cluster)
    environment = cluster_environment(cluster, namespace, kubectl, tmp_path)
    try:
        run_page(ON_CLUSTER, tmp_path / "folder", environment)
        left = subprocess.run(["longboat", "ps", "-o", "name"], env=environment, capture_output=True, check=True)
        assert left.stdout == b"", "the page removes its runs"
    finally:
        subprocess.run(["longboat", "rm", "--all", "--force", "--yes", "--on", "lab"], env=environment, check=True)


def cluster_environment(cluster: Cluster, namespace: str, kubectl: Kubectl, folder: Path) -> dict[str, str]:
    """A kubeconfig whose context is called `lab`, and kubectl of the same version as the cluster."""
    config = json.loads(Path(cluster.kubeconfig).read_text())
    (entry,) = config["contexts"]
    named = {"name": "lab", "context": {**entry["context"], "namespace": namespace}}
    (folder / "kubeconfig").write_text(json.dumps({**config, "contexts": [named], "current-context": "lab"}))
    (folder / "bin").mkdir()
    (folder / "bin" / "kubectl").symlink_to(kubectl.program)
    path = os.pathsep.join([str(folder / "bin"), sysconfig.get_path("scripts"), os.environ["PATH"]])
    kept = {name: value for name, value in os.environ.items() if name != "LONGBOAT_ENGINE"}
    return {**kept, "PATH": path, "NO_COLOR": "1", "KUBECONFIG": str(folder / "kubeconfig")}


def give_image(cluster: Cluster) -> None:
    """The image that jobs get that name none: the test image under another name."""
    holder = namespaces.holder_of(clusters.get(cluster.name), node.name_of(0))
    assert holder is not None
    programs = binaries.find(("tools", "containerd"))
    command = [str(programs["ctr"]), "-a", node.SOCKET, "-n", "k8s.io", "images", "tag", "--force"]
    namespaces.run(holder, [*command, images.reference("python"), "docker.io/library/python:3.12-slim"])


def test_the_role_on_the_page_is_the_one_that_runs_need() -> None:
    import yaml

    from longboat.engines.kubernetes.submit.facts.permissions import PERMISSIONS, role_for

    (text,) = [text for _, text in blocks(ON_CLUSTER) if text.startswith("# role.yaml")]
    assert yaml.safe_load(text) == role_for(PERMISSIONS, namespace="vision")


def test_every_setting_is_on_the_page() -> None:
    from longboat.engines.kubernetes.setting_fields import FIELDS

    text = ON_CLUSTER.read_text()
    assert [field.name for field in FIELDS if f"| `{field.name}" not in text] == []


def test_every_command_has_its_section() -> None:
    from longboat.cli.main import cli

    text = (ROOT / "docs" / "cli.md").read_text()
    assert [name for name in cli.table if f"\n## {name}\n" not in text] == []


def test_every_exit_code_of_ours_is_in_the_table() -> None:
    from longboat.cli import errors as of_commands
    from longboat.core import errors

    named = {**vars(errors), **vars(of_commands)}
    codes = {value for name, value in named.items() if name.endswith("_EXIT")}
    codes |= {kind.exit_code for kind in vars(errors).values() if isinstance(kind, type) and hasattr(kind, "exit_code")}
    table = (ROOT / "docs" / "exit-codes.md").read_text()
    assert {int(code) for code in re.findall(r"^\| (\d{3}) \|", table, re.MULTILINE)} == codes


def test_a_wrong_example_is_noticed(tmp_path: Path) -> None:
    environment = dict(os.environ)
    run_block("$ printf 'a\\nb b\\nc\\n'\nb ...\nc\n$ false\n$ echo $?\n1\n", tmp_path, environment)
    skipped = "$ printf 'a\\nb\\nc\\n'\na\nc\n"
    for wrong in ("$ false\n", "$ echo a\nb\n", skipped, "$ echo ab\nb\n", "$ true\n$ echo $?\n1\n"):
        with pytest.raises(AssertionError):
            run_block(wrong, tmp_path, environment)

"""What a run misses of its submitter's folder, told before and after."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from longboat.bundles.snapshot import CodeSnapshot, take
from longboat.bundles.store import BundleStore
from longboat.core.jobs import Command, Job, Role, Volume
from longboat.core.runs import Explanation, Failure, RankReport
from longboat.engines.shared.advice import INSTALL
from longboat.engines.shared.code_snapshot import (
    code_notices,
    missed_by,
    still_needed,
    with_environments,
    with_missed_files,
)
from longboat.engines.shared.home import Home
from tests.bundles.trees import commit_all, make

FILES = {
    ".gitignore": "data/\nresults/\n.venv/\n",
    "train.py": "",
    "data/x.npy": "1",
    "results/old": "1",
    ".venv/pyvenv.cfg": "",
    ".venv/bin/activate": "",
    "scripts/go.py": "",
    "go.sh": "#!/bin/bash\n# ls data/x.npy\nsource .venv/bin/activate\npython train.py --data data/\n",
    "scripts/keys.py": f"TOKEN = 'hf_{'a1' * 18}'",
    "far": "->/mnt/far",
}


@pytest.fixture
def snapshot(tmp_path: Path) -> CodeSnapshot:
    root = make(tmp_path / "tree", FILES)
    commit_all(root)
    return take(root, BundleStore(tmp_path / "home" / "bundles"))


def job(run: Command, **more: object) -> Job:
    return Job(name="job", roles=(Role(name="worker", run=run),), ends=("worker",), **more)  # type: ignore[arg-type]


DATA = "data stays behind: git ignores it by .gitignore:1: data/; `include: [data]` takes it along"


def test_what_the_command_names(snapshot: CodeSnapshot) -> None:
    (notice,) = code_notices(snapshot, job(["python", "train.py", "--data", "data/"]), is_cluster=False)
    assert notice.startswith(DATA)
    (notice,) = code_notices(snapshot, job("python train.py", setup="ls data/x.npy"), is_cluster=False)
    assert notice.startswith(DATA)
    for quiet in ("python train.py far", "python train.py --out results", "python nowhere.py"):
        assert code_notices(snapshot, job(quiet), is_cluster=False) == []
    mounted = job("python train.py data", volumes=(Volume(target="data", path="/d"),))
    assert code_notices(snapshot, mounted, is_cluster=False) == []


def test_an_environment_that_the_command_names_is_linked_on_this_machine(snapshot: CodeSnapshot) -> None:
    this = job(". .venv/bin/activate && python train.py")
    linked = with_environments(snapshot, this)
    assert linked.outside == {"far": "/mnt/far", ".venv": f"{snapshot.root}/.venv"}
    assert code_notices(linked, this, is_cluster=False) == []
    assert with_environments(snapshot, job("python train.py")).outside == {"far": "/mnt/far"}


@pytest.mark.parametrize(
    "run", [["bash", "-lc", "source .venv/bin/activate && python train.py"], ["sh", "go.sh"], "./go.sh --epochs 3"]
)
def test_an_environment_that_a_shell_in_the_command_uses_is_linked_too(snapshot: CodeSnapshot, run: Command) -> None:
    linked = with_environments(snapshot, job(run))
    assert linked.outside == {"far": "/mnt/far", ".venv": f"{snapshot.root}/.venv"}
    assert code_notices(linked, job(run), is_cluster=False) == []


def test_a_cluster_misses_links_and_environments(snapshot: CodeSnapshot) -> None:
    first, second = code_notices(snapshot, job(". .venv/bin/activate && python train.py"), is_cluster=True)
    assert first.startswith(".venv stays behind: virtual environments never travel; say `python`")
    assert (
        "missing on the cluster: far -> /mnt/far; a volume takes its place: `volumes: {far: {claim: NAME}}`" in second
    )


MISSED = [
    ("FileNotFoundError: [Errno 2] No such file or directory: 'data/x.npy'", "data stays behind: git ignores it by"),
    ("ModuleNotFoundError: No module named 'keys'", "scripts/keys.py stays behind: it holds a Hugging Face token"),
]


@pytest.mark.parametrize(("line", "fact"), MISSED)
def test_what_a_failure_names(snapshot: CodeSnapshot, tmp_path: Path, line: str, fact: str) -> None:
    rank = RankReport(rank=0, node="worker-0", traceback=f"Traceback (most recent call last):\n  f()\n{line}")
    failure = Failure(cause="exception", exit_code=1, message="", rank=rank)
    this = job("python scripts/go.py")
    ((text, step),) = missed_by(snapshot, this, failure, is_cluster=True)
    assert text.startswith(fact) and step.startswith("`include: [")
    said = Explanation(run="r", phase="failed", headline="", facts=("a",), next_steps=("b",))
    home = Home(tmp_path / "home")
    found = with_missed_files(said, home, (snapshot.hash, this, failure), is_cluster=True)
    assert (found.facts, found.next_steps) == (("a", text), (step, "b"))
    for bundle in (None, "0" * 64):  # no code, or a bundle that was made on another machine
        assert with_missed_files(said, home, (bundle, this, failure), is_cluster=True) == said


def test_a_failure_about_something_else_names_nothing(snapshot: CodeSnapshot) -> None:
    failure = Failure(cause="exception", exit_code=1, message="FileNotFoundError: 'nowhere/x'")
    assert missed_by(snapshot, job("python train.py"), failure, is_cluster=False) == []
    elsewhere = msgspec.structs.replace(snapshot, root="")
    failure = Failure(cause="exception", exit_code=1, message="FileNotFoundError: 'data/x.npy'")
    assert missed_by(elsewhere, job("python train.py"), failure, is_cluster=False) == []


def test_a_module_that_stays_behind_need_not_be_installed() -> None:
    steps = ["longboat logs train", f"{INSTALL}helper where the run has its Python"]
    assert still_needed(steps, missed=["helper"]) == steps[:1]
    assert still_needed(steps, missed=[]) == steps

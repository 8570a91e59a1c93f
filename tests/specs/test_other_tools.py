"""Files of other tools in a job file's place: said once, with what to do, and never of a job file with a mistake."""

from __future__ import annotations

from pathlib import Path

import pytest

from longboat.core.errors import JobError
from longboat.specs.read import read_job


def mistakes(tmp_path: Path, text: str, name: str = "x.yaml") -> list[tuple[str, str | None]]:
    (tmp_path / name).write_text(text)
    with pytest.raises(JobError) as caught:
        read_job([Path(name)], environment={}, cwd=tmp_path)
    return [(str(problem), problem.hint) for problem in caught.value.problems]


@pytest.mark.parametrize(
    ("text", "what", "hint"),
    [
        ("apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata: {name: x}", "object of Kubernetes", "kubectl apply"),
        ("kind: [Job]\napiVersion: batch/v1", "object of Kubernetes (kind: ?)", "kubectl apply"),
        (
            "name: x\nrun: a\nnum_nodes: 2\nresources: {accelerators: A100}",
            "file of SkyPilot",
            "longboat import x.yaml",
        ),
        ("run: a\nfile_mounts: {/a: ./b}", "file of SkyPilot", "longboat import x.yaml"),
        ("type: task\ncommands: [python train.py]", "file of dstack", "longboat import x.yaml"),
        ("name: lab\nhosts: [{address: a}]", "cluster file", "longboat cluster check x.yaml"),
        ("pools: [{name: a}]", "pools file", "longboat autoscaler plan --pools x.yaml"),
    ],
)
def test_what_a_file_is_instead(tmp_path: Path, text: str, what: str, hint: str) -> None:
    ((message, next_step),) = mistakes(tmp_path, text)
    assert message.startswith("x.yaml: this is a") and what in message
    assert next_step is not None and hint in next_step


def test_a_script_is_no_job_file(tmp_path: Path) -> None:
    expected = [("train.py: this is a script, not a job file", "a job runs it: `run: python train.py`")]
    assert mistakes(tmp_path, "p.add(a, type=int: 3)\n", "train.py") == expected


@pytest.mark.parametrize("text", ["run: a\nresources: {gpus: 1}", "run: a\nnum_nodes: 2\ngpus: 1", "run: a\ntype: x"])
def test_a_job_file_with_a_mistake_stays_one(tmp_path: Path, text: str) -> None:
    assert all("unknown field" in message for message, _ in mistakes(tmp_path, text))


def test_the_allowed_fields_are_listed_once(tmp_path: Path) -> None:
    lines = [message for message, _ in mistakes(tmp_path, "run: a\nxxxxxxx: 1\nyyyyyyy: 2\nroles: {w: {zzzzzzz: 1}}")]
    assert [line.count("; allowed: ") for line in lines] == [1, 0, 1]

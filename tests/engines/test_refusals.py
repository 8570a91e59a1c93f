"""Refusals: every reason on a line of its own, hints that can be followed together."""

from __future__ import annotations

import pytest

from longboat.core.jobs import Gpus, Job, Resources, Role
from longboat.engines.refusals import agreed, changed_fields, missing_path, refusal


def test_one_reason_is_a_sentence_and_several_are_a_list() -> None:
    one = refusal("it cannot be", [("too few", "take more")])
    assert (one.message, one.hint) == ("it cannot be: too few", "take more")
    more = refusal("it cannot be", [("too few", "take more"), ("too late", None), ("too few", "hurry")])
    assert more.message.splitlines() == ["it cannot be:", "  - too few", "  - too late"]
    assert more.hint == "take more\nhurry"


@pytest.mark.parametrize(
    ("hints", "said"),
    [
        (["nearest that fits: `nodes: 2`", "drop it"], ["nearest that fits: `nodes: 2`", "drop it"]),
        (
            ["nearest that fits: `nodes: 2`, or another queue", "nearest that fits: `nodes: 4` with `gpus: 4` each"],
            ["nearest that fits: `nodes: 2` with `gpus: 4`, or another queue"],
        ),
        (
            ["nearest that fits: `memory: 2Gi`", "mend it", "nearest that fits: `memory: 900Mi`, or `shm: 1Gi`"],
            ["nearest that fits: `memory: 900Mi` with `shm: 1Gi`", "mend it"],
        ),
        (
            ["nearest that fits: `nodes: 1` for role ps; x", "nearest that fits: `nodes: 3`"],
            ["nearest that fits: `nodes: 1` for role ps; x", "nearest that fits: `nodes: 3`"],
        ),
    ],
)
def test_sizes_that_fit_are_not_contradictory(hints: list[str], said: list[str]) -> None:
    assert agreed(hints) == said


def test_another_job_is_told_in_the_words_of_job_files() -> None:
    def job(run: str, *, gpus: int = 0, names: tuple[str, ...] = ("worker",)) -> Job:
        resources = Resources(gpus=Gpus(count=gpus))
        roles = tuple(Role(name=name, run=run, resources=resources) for name in names)
        return Job(name="a", roles=roles, ends=names, framework_reason=run)

    assert changed_fields(job("x"), job("x")) == []
    assert changed_fields(job("x"), job("y", gpus=2)) == ["run", "gpus"]
    assert changed_fields(job("x", names=("a", "b")), job("y", names=("a", "b"))) == ["roles.a.run", "roles.b.run"]


def test_an_artifact_is_looked_for_in_the_folder_of_its_node() -> None:
    assert "longboat cp train:artifacts ." in (missing_path("train", "artifacts/out.txt").hint or "")
    assert "working copy" in (missing_path("train", "out.txt").hint or "")

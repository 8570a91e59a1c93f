"""What is kept of runs in clusters for `rerun`, and what is said about a run that is run again."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from longboat.core.errors import NotFound
from longboat.core.jobs import DataImport, Gpus, Job, Resources, Role, Secret, Sweep, Volume
from longboat.core.runs import REPLICA_OF
from longboat.engines.engine import Submission
from longboat.engines.lifecycle import resubmission
from longboat.engines.lifecycle.resubmission import (
    KEPT_S,
    SubmissionNote,
    again,
    changed_since,
    forget_submission,
    note_of,
    note_submission,
    noted_code,
    noted_submission,
    with_recorded,
)
from longboat.engines.shared.home import Home

JOB = Job(name="a", roles=(Role(name="worker", run="true", image="python:3.12"),), ends=("worker",))


def test_a_note_is_found_again(tmp_path: Path) -> None:
    home = Home(tmp_path)
    submission = Submission(job=JOB, base="/work", environment={"TOKEN": "secret"})
    note_submission(home, "00aa", note_of(submission, run="a", namespace="team", code="c0de"))
    kept = noted_submission(home, "00aa", run="a", namespace="team")
    assert (kept.job, kept.base, kept.code, kept.environment) == (JOB, "/work", "c0de", {})
    assert noted_code(home) == {"c0de"}
    assert b"secret" not in (tmp_path / "submissions" / "00aa.json").read_bytes()
    for uid, run, namespace in (("00aa", "b", "team"), ("00aa", "a", "other"), ("00bb", "a", "team")):
        with pytest.raises(NotFound):
            noted_submission(home, uid, run=run, namespace=namespace)
    forget_submission(home, "00aa")
    assert noted_code(home) == set()


def test_old_notes_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = Home(tmp_path)
    note = note_of(Submission(job=JOB, base="/"), run="a", namespace="team", code=None)
    note_submission(home, "00aa", note)
    old = tmp_path / "submissions" / "00aa.json"
    os.utime(old, (old.stat().st_mtime - KEPT_S - 60,) * 2)
    monkeypatch.setattr(resubmission, "read_value", lambda *_: pytest.fail("a submission reads no notes"))
    note_submission(home, "00bb", note)
    assert [path.name for path in old.parent.iterdir()] == ["00bb.json"]


def test_a_trial_that_a_controller_made_is_its_sweep_with_its_parameters(tmp_path: Path) -> None:
    home = Home(tmp_path)
    role = Role(name="worker", run="train ${sweep.lr}")
    swept = Job(name="a", roles=(role,), sweep=Sweep(space={"lr": (0.1, 0.2)}))
    note_submission(home, "feedbeef", SubmissionNote(run="a", namespace="team", job=swept, base="/", code="c0de"))

    def rerun(uid: str = "feedbeef", namespace: str = "team", **params: Any) -> Submission:
        job = Job(name="a", roles=(Role(name="worker", run="steal"),), params=params, labels={"sweep-uid": uid})
        return noted_submission(home, "00aa", run="a-t1", namespace=namespace, job=job)

    made = rerun(lr=0.2)
    assert (made.job.roles[0].run, made.job.params, made.job.sweep) == ("train 0.2", {"lr": 0.2}, None)
    assert made.code == "c0de"
    for forged in ({"lr": 0.3}, {"lr": "$(reboot)"}, {}):
        with pytest.raises(NotFound):
            rerun(**forged)
    for uid, namespace in (("../../etc", "team"), ("00000000", "team"), ("feedbeef", "other")):
        with pytest.raises(NotFound):
            rerun(uid, namespace, lr=0.2)


def test_packages_and_types_of_gpus_are_not_pinned() -> None:
    role = Role(name="worker", run="x", resources=Resources(gpus=Gpus(count=1)))
    job = Job(name="a", roles=(role,), setup="pip install torch")
    assert changed_since(Submission(job=job, base="/"), is_cluster=True) == [
        "setup runs again: what it installs may be newer",
        "no type of GPU is named, so it may get others: worker",
    ]


def test_what_may_not_be_the_same() -> None:
    job = Job(
        name="a",
        roles=JOB.roles,
        secrets=(Secret(name="TOKEN"),),
        data=(DataImport(url="https://x/y", to="data"), DataImport(url="https://x/z", to="fixed", sha256="0" * 64)),
        volumes=(Volume(target="/sets", claim="sets"), Volume(target="tmp", scratch=True)),
    )
    submission = Submission(job=job, base="/", environment={"VIRTUAL_ENV": "/nowhere/venv"})
    assert changed_since(submission, is_cluster=True) == [
        "secrets are read again: TOKEN",
        "data without a sha256 may be other data now: data",
        "volumes hold what they hold now: /sets",
        "images named by a tag may be others now: python:3.12",
    ]
    assert changed_since(submission, is_cluster=False)[-1] == "the Python environment /nowhere/venv is gone"
    assert changed_since(Submission(job=JOB, base="/"), is_cluster=False) == []
    seen = {"worker": f"python:3.12@sha256:{'1' * 64}"}
    assert changed_since(Submission(job=JOB, base="/"), is_cluster=True, images=seen) == [
        f"images named by a tag may be others now; these were: python:3.12@sha256:{'1' * 64}"
    ]


def test_the_same_python_again() -> None:
    now = {"PATH": "/new", "VIRTUAL_ENV": "/new", "TOKEN": "t"}
    assert with_recorded(now, {"PATH": "/old"}, ("PATH", "VIRTUAL_ENV")) == {"PATH": "/old", "TOKEN": "t"}


def test_with_a_checkpoint_or_other_code() -> None:
    first = Submission(job=JOB, base="/", code="c0de")
    assert again(first, resume=None, fresh_code=False) == first
    assert again(first, resume=None, fresh_code=True).code is None
    assert again(first, resume="a", fresh_code=False).job.checkpoints.resume == "a"


def test_a_run_made_from_a_replica_or_a_trial_is_neither() -> None:
    def labels_after(labels: dict[str, str]) -> dict[str, str]:
        first = Submission(job=msgspec.structs.replace(JOB, labels=labels), base="/")
        return dict(again(first, resume=None, fresh_code=False).job.labels)

    assert labels_after({"team": "a", REPLICA_OF: "u1"}) == {"team": "a"}
    assert labels_after({"team": "a", "sweep": "lr", "trial": "3", "sweep-uid": "u2"}) == {"team": "a"}
    assert labels_after({"sweep": "mine"}) == {"sweep": "mine"}, "a label of the user's own"


def test_it_may_start_after_other_runs_and_in_place_it_has_no_code_of_then() -> None:
    first = Submission(job=msgspec.structs.replace(JOB, after=("a",)), base="/", in_place=True)
    assert again(first, resume=None, fresh_code=False).job.after == ("a",)
    assert again(first, resume=None, fresh_code=False, after=()).job.after == ()
    assert again(first, resume=None, fresh_code=False, after=("b",)).job.after == ("b",)
    assert "it runs in place: with the files that its folder holds now" in changed_since(first, is_cluster=False)

"""A replica that restores another step than it was made with, and tells which ones there are."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from longboat.launcher.pod.replica.followed import place_of, with_step
from longboat.serving.following import next_step
from longboat.serving.kubernetes.following import entries_of
from longboat.storage.checkpoint_mirror import Mirror
from longboat.storage.retention import Retention, evaluated_name, promoted_name
from tests.launcher.nodes import LAUNCHER
from tests.launcher.pods import Pods, checkpoint
from tests.storage.realstores import Running

Make = Callable[..., Pods]
SHOW = "import os; print(os.environ.get('LONGBOAT_RESUME_FROM'), os.environ.get('LONGBOAT_FOLLOWED_STEP'))"


@pytest.mark.parametrize(
    ("resume", "step", "there"),
    [
        ("/c/step-3", "12", "/c/step-12"),
        ("/c/", "0", "/c/step-0"),
        ("s3://b/run/step-3/", "4", "s3://b/run/step-4"),
        ("s3://b/run", "4", "s3://b/run/step-4"),
        (None, "4", None),
    ],
)
def test_another_step_of_the_same_place(resume: str | None, step: str, there: str | None) -> None:
    assert with_step(resume, step) == there


@pytest.mark.parametrize("step", ["", "-1", "../4", "4/../../x", "4 ", "٤", "9" * 19])
def test_what_is_no_step_leads_nowhere(step: str) -> None:
    with pytest.raises(ValueError, match="the step to be served is none"):
        with_step("/c/step-3", step)
    assert place_of("/c/step-3x") == "/c/step-3x"


def told(root: Path, *follow: str) -> Any:
    command = [sys.executable, "-I", "-S", str(LAUNCHER), "--checkpoints", str(root), *follow]
    done = subprocess.run(command, capture_output=True, env={"PATH": os.environ["PATH"]}, check=False)
    return json.loads(done.stdout) if done.returncode == 0 else done.stderr.decode()


def test_a_pod_restores_the_step_that_it_is_told(make_pods: Make) -> None:
    pods = make_pods(script=SHOW)
    theirs = pods.folder / "theirs"
    for step, metrics in ((1, {"accuracy": 0.5}), (2, {"accuracy": 0.9}), (3, {})):
        checkpoint(theirs, step)
        (theirs / f"step-{step}" / ".complete").write_text(json.dumps({"step": step, "metrics": metrics}))
    (theirs / "step-4").mkdir()  # is being written
    (theirs / promoted_name(2)).touch()
    (theirs / evaluated_name(3)).write_text(json.dumps({"accuracy": 0.7}))
    pods.gang["checkpoints"]["resume"] = str(theirs / "step-1")
    assert pods.run(env={"LONGBOAT_FOLLOWED_STEP": "2"}) == [0]
    assert pods.log(0, "0.out") == f"{theirs / 'step-2'} None\n"
    root = pods.root(0)
    assert told(root, "newest") == {"checkpoints": [[1, {}], [2, {}], [3, {}]], "promoted": [2]}
    with_metrics = told(root, "best", "accuracy")["checkpoints"]
    assert with_metrics[:2] == [[1, {"accuracy": 0.5}], [2, {"accuracy": 0.9}]]
    assert told(root, "best")["checkpoints"] == told(root, "newest", "accuracy")["checkpoints"]
    assert "FileNotFoundError" in told(pods.folder / "nowhere", "newest")


def test_a_metric_that_is_no_number_keeps_no_service_from_the_others(make_pods: Make) -> None:
    pods = make_pods(script=SHOW)
    theirs = pods.folder / "theirs"
    many = {f"metric-{number}": 0.123456789 for number in range(2000)}
    for step in range(1, 41):
        checkpoint(theirs, step)
        metrics = {**many, "loss": float("nan") if step % 2 else float(step)}
        (theirs / f"step-{step}" / ".complete").write_text(json.dumps({"step": step, "metrics": metrics}))
    pods.gang["checkpoints"]["resume"] = str(theirs / "step-1")
    assert pods.run() == [0]
    answer = json.dumps(told(pods.root(0), "best", "loss")).encode()
    assert len(answer) < 2000, "of two thousand metrics one is asked for"
    entries = entries_of(answer, "pod")
    assert {entry.step: dict(entry.metrics) for entry in entries}.items() >= {3: {}, 4: {"loss": 4.0}}.items()
    assert next_step(entries, "best", Retention(metric="loss", goal="min"), serving=4, failed=()) == 2


def test_a_step_that_is_gone_is_no_other(make_pods: Make) -> None:
    pods = make_pods(script=SHOW)
    checkpoint(pods.folder / "theirs", 1)
    pods.gang["checkpoints"]["resume"] = str(pods.folder / "theirs" / "step-1")
    assert pods.run(env={"LONGBOAT_FOLLOWED_STEP": "7"}) != [0]
    assert "no complete checkpoint to resume from" in pods.message()["message"]


def test_who_asks_a_store_that_never_answers_leaves_nothing_behind(tmp_path: Path) -> None:
    """Whoever asked goes after half a minute; the program, which nothing ends, would try for minutes."""
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        keys = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret"}
        env = {**keys, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{silent.getsockname()[1]}"}
        (tmp_path / "node").mkdir()
        plan = {"resume_from": "s3://data/ckpt/step-1", "env": env}
        (tmp_path / "node" / "plan.json").write_text(json.dumps(plan))
        program = (
            "import sys; from longboat.launcher.pod.replica import followed; "
            "followed.LONGEST_S = 1; sys.exit(followed.main(sys.argv))"
        )
        words = [sys.executable, "-c", program, str(tmp_path), "newest"]
        assert subprocess.run(words, check=False, timeout=25).returncode == -signal.SIGALRM


def test_in_an_object_store_with_the_variables_of_the_pod(make_pods: Make, s3: Running, tmp_path: Path) -> None:
    url = f"s3://data/ckpt/{uuid.uuid4().hex}"
    environment: Mapping[str, str] = s3.environment
    mirror = Mirror(url, environment)
    for step in (1, 2):
        checkpoint(tmp_path, step)
        (tmp_path / f"step-{step}" / ".complete").write_text(json.dumps({"step": step, "metrics": {"loss": step}}))
        mirror.send(tmp_path / f"step-{step}")
    mirror.mark(promoted_name(1), b"")
    known, promoted = mirror.candidates(most_read=1)
    assert [(each.step, dict(each.metrics)) for each in known] == [(1, {}), (2, {"loss": 2.0})] and promoted == {1}
    pods = make_pods(script=SHOW)
    pods.gang["checkpoints"]["resume"] = f"{url}/step-1"
    pods.gang["roles"]["worker"]["env"] |= {name: environment[name] for name in environment if name.startswith("AWS_")}
    assert pods.run(env={"LONGBOAT_FOLLOWED_STEP": "2"}) == [0]
    assert pods.log(0, "0.out").split()[0].endswith("/step-2")
    assert told(pods.root(0), "newest") == {"checkpoints": [[1, {}], [2, {}]], "promoted": [1]}
    assert told(pods.root(0), "best", "loss")["checkpoints"] == [[1, {"loss": 1.0}], [2, {"loss": 2.0}]]

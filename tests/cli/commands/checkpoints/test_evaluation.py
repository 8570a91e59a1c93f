"""A role that evaluates every checkpoint beside the training, on this machine; also where they go to a real store."""

from __future__ import annotations

import json
import uuid

import pytest

from tests.cli.conftest import Longboat
from tests.storage.conftest import azure, s3
from tests.storage.realstores import Running

__all__ = ["azure", "s3"]

TRAIN = """
import os, time
import longboat

for step in range(1, 5):
    longboat.step(step, loss=1.0 / step)
    with longboat.checkpoint(step) as folder:
        open(folder + "/weights", "w").write(str(step))
    # Not faster than the evaluator: each of them is to be evaluated.
    until = time.monotonic() + 60
    while step < 4 and time.monotonic() < until:
        if os.path.exists("%s/.metrics-step-%d" % (longboat.checkpoint_dir(), step)):
            break
        time.sleep(0.02)
"""
EVAL = """
import longboat

count = 0
for step, folder in longboat.new_checkpoints():
    weights = int(open(folder + "/weights").read())
    longboat.evaluated(step, accuracy=0.9 if weights == 2 else 0.5)
    count += 1
print("evaluated", count, "checkpoints")
"""
JOB = """
name: digits
roles:
  worker: {run: python train.py}
  evaluator: {run: python eval.py}
checkpoints: {keep: {last: 1, best: 1, metric: accuracy}}
"""


def test_the_evaluator_follows_to_the_last_and_the_best_stays(longboat: Longboat) -> None:
    for name, text in (("train.py", TRAIN), ("eval.py", EVAL), ("job.yaml", JOB)):
        (longboat.folder / name).write_text(text)
    ran = longboat("run", "job.yaml")
    assert "evaluated 4 checkpoints" in ran.out
    entries = json.loads(longboat("checkpoint", "ls", "digits", "-o", "json").out)
    assert [(entry["step"], entry["metrics"]["accuracy"]) for entry in entries] == [(2, 0.9), (4, 0.5)]
    metrics = json.loads(longboat("metrics", "digits", "-o", "json").out)
    assert [point[0] for point in metrics["series"]["accuracy"]] == [1, 2, 3, 4]


SLOW = "import time\ntime.sleep(3)  # libraries that take their time\n"
SHORT = """
import longboat

with longboat.checkpoint(1) as folder:
    open(folder + "/weights", "w").write("1")
"""


def test_an_evaluator_that_has_not_begun_when_the_training_ends_sees_the_last_one(longboat: Longboat) -> None:
    for name, text in (("train.py", SHORT), ("eval.py", SLOW + EVAL), ("job.yaml", JOB)):
        (longboat.folder / name).write_text(text)
    assert "evaluated 1 checkpoints" in longboat("run", "job.yaml").out


@pytest.mark.stores
@pytest.mark.parametrize("kind", ["s3", "azure"])
def test_what_an_evaluator_says_is_in_the_store_beside_them(
    longboat: Longboat, kind: str, request: pytest.FixtureRequest
) -> None:
    server: Running = request.getfixturevalue(kind)
    longboat.environment.update({name: value for name, value in server.environment.items() if name != "HOME"})
    scheme = {"s3": "s3", "azure": "az"}[kind]
    secrets = [name for name in server.environment if name.endswith(("KEY", "KEY_ID", "STRING"))]
    env = {name: value for name, value in server.environment.items() if name not in (*secrets, "HOME")}
    to = f"{scheme}://data/{uuid.uuid4().hex}"
    job = JOB.replace("{keep:", f"{{to: '{to}', keep:") + f"secrets: {json.dumps(secrets)}\nenv: {json.dumps(env)}\n"
    for name, text in (("train.py", TRAIN), ("eval.py", EVAL), ("job.yaml", job)):
        (longboat.folder / name).write_text(text)
    assert "evaluated 4 checkpoints" in longboat("run", "job.yaml").out
    entries = json.loads(longboat("checkpoint", "ls", "digits", "-o", "json").out)
    assert [(entry["step"], entry["metrics"]["accuracy"]) for entry in entries] == [(2, 0.9), (4, 0.5)]
    assert all(entry["where"].startswith(to) for entry in entries)
    longboat("checkpoint", "get", "digits:2", "best")
    assert (longboat.folder / "best" / "weights").read_text() == "2"
    longboat("checkpoint", "verify", "digits")
    longboat("checkpoint", "promote", "digits:2")
    longboat("checkpoint", "rm", "digits:2", "--force")
    entries = json.loads(longboat("checkpoint", "ls", "digits", "-o", "json").out)
    assert [entry["step"] for entry in entries] == [4]

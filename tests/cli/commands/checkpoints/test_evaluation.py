"""A role that evaluates every checkpoint beside the training, on this machine."""

from __future__ import annotations

import json

from tests.cli.conftest import Longboat

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

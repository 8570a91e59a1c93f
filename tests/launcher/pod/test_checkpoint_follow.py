"""A rank that follows the checkpoints of a training in another pod, through a real object store."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from longboat.storage.inventory.store_place import StorePlace
from tests.launcher.pods import Pods
from tests.storage.realstores import Running

pytestmark = pytest.mark.stores

TRAIN = """
import os, sys, time
import longboat

def seen(step):
    return os.path.exists(os.path.join(os.environ["SHARED"], "seen-%d" % step))

if sys.argv[1] == "train":
    last = int(sys.argv[2])
    for step in range(1, last + 1):
        with longboat.checkpoint(step) as folder:
            open(os.path.join(folder, "model"), "w").write("x" * step)
        until = time.monotonic() + 60
        while step < last and not seen(step) and time.monotonic() < until:
            time.sleep(0.05)
else:
    for step, folder in longboat.new_checkpoints():
        assert len(open(os.path.join(folder, "model")).read()) == step
        print("step", step, "of", sorted(name for name in os.listdir(os.path.dirname(folder)) if name[0] != "."))
        longboat.evaluated(step, accuracy=0.9 if step == 2 else 0.5)
        open(os.path.join(os.environ["SHARED"], "seen-%d" % step), "w").close()
    print("ends", flush=True)
"""
SLOW = "import time; time.sleep(4)  # libraries that take their time\n"


def run(make_pods: Callable[..., Pods], store: Running | None, url: str, script: str, steps: int) -> Pods:
    commands = {"worker": ["python", "train.py", "train", str(steps)], "eval": ["python", "train.py", "eval"]}
    pods = make_pods(roles={"worker": 1, "eval": 1}, commands=commands, script=script, deciding=["worker"])
    keep = {"last": 2, "best": 1, "metric": "accuracy"}
    for place in (0, 1):
        folder = pods.node(place) if store else pods.folder
        checkpoints: dict[str, Any] = {"dir": str(folder / "checkpoints"), "keep": keep, "resume": None}
        checkpoints |= {"store": url} if store else {}
        pods.start(place, gang={"checkpoints": checkpoints}, env=store.environment if store else {})
    assert [pods.wait(place) for place in (0, 1)] == [0, 0], [pods.stderr(place) for place in (0, 1)]
    return pods


def steps_of(pods: Pods) -> list[int]:
    lines = pods.log(1, "1.out").splitlines()
    assert lines[-1] == "ends", lines
    return [int(line.split()[1]) for line in lines[:-1]]


def test_each_is_fetched_to_the_last_and_the_best_stays(s3: Running, make_pods: Callable[..., Pods]) -> None:
    """The last one is sent when the training has ended; the evaluator waits for it."""
    url = f"s3://data/ckpt/{uuid.uuid4().hex}"
    pods = run(make_pods, s3, url, TRAIN, 4)
    assert steps_of(pods) == [1, 2, 3, 4]
    assert all(len(line.split()) <= 5 for line in pods.log(1, "1.out").splitlines()), "old ones leave the pod's disk"
    entries = StorePlace(url, s3.environment).entries()
    assert [(entry.step, entry.metrics["accuracy"]) for entry in entries] == [(2, 0.9), (3, 0.5), (4, 0.5)]


@pytest.mark.parametrize("is_apart", [True, False], ids=["store", "folder"])
def test_an_evaluator_that_has_not_begun_sees_the_last_one_of_a_short_training(
    s3: Running, make_pods: Callable[..., Pods], is_apart: bool
) -> None:
    url = f"s3://data/ckpt/{uuid.uuid4().hex}"
    script = TRAIN.replace("import longboat\n", f"if sys.argv[1] == 'eval':\n    {SLOW}import longboat\n")
    assert steps_of(run(make_pods, s3 if is_apart else None, url, script, 1)) == [1]


def test_a_program_that_follows_nothing_is_told_to_end(make_pods: Callable[..., Pods], tmp_path: Path) -> None:
    """Of the role ps at once; of an evaluator when it is old enough to have begun."""
    script = "import os, sys, time\nif sys.argv[1] == 'train': sys.exit(0)\ntime.sleep(600)\n"
    commands = {name: ["python", "train.py", "train" if name == "worker" else "wait"] for name in ("worker", "ps")}
    pods = make_pods(roles={"worker": 1, "ps": 1}, commands=commands, script=script, deciding=["worker"])
    assert pods.run() == [0, 0]
    ended = pods.report(1, 1)
    assert ended["ended_by"] == "success" and ended["signal"] == 15 and os.path.exists(pods.node(1) / "stop")

"""Checkpoints of real pods in a bucket: without any storage of the cluster, a retry goes on where the first ended."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from longboat.core.errors import EngineError, NotFound
from longboat.core.runs import LogQuery
from longboat.storage.checkpoint_mirror import Mirror
from longboat.storage.inventory.store_place import StorePlace
from tests.engines.kubernetes.benches import Bench
from tests.storage.realstores import ALONE, KEYS, Running

pytestmark = pytest.mark.pods

LONG_S = 240.0
TRAINS = """
import os, socket, time, longboat

def meet():
    # A failure of one rank ends the other, whether that has begun or not: both must have come so far.
    place = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    if longboat.world_size() == 1:
        return
    if longboat.rank() == 0:
        with socket.create_server(("", place[1])) as server, server.accept()[0] as other:
            other.recv(1)
        return
    while True:
        try:
            socket.create_connection(place, 5).close()
            return
        except OSError:
            time.sleep(0.05)

folder = longboat.resume_from()
start = int(open(os.path.join(folder, "step")).read()) if folder else 0
print("rank", longboat.rank(), "from", start, flush=True)
meet()
for step in range(start + 1, start + 3):
    with longboat.checkpoint(step) as folder:
        open(os.path.join(folder, "step"), "w").write(str(step))
if os.environ["LONGBOAT_ATTEMPT"] == "0" and not start and longboat.rank() == 0:
    raise SystemExit(3)
"""


def finished(bench: Bench, **fields: Any) -> tuple[Any, str]:
    name = bench.engine.submit(bench.submission(TRAINS, **fields)).name
    status = bench.engine.wait(name, timeout_s=LONG_S)
    text = b"".join(line.data for line in bench.engine.logs(name, LogQuery())).decode()
    return status, text


def test_both_nodes_resume_from_the_bucket_another_run_too_and_purge_empties_it(
    store: Running, bench: Bench, tmp_path: Path
) -> None:
    bench.environment.update({**ALONE, **KEYS})
    given: dict[str, Any] = {"env": {"AWS_ENDPOINT_URL": store.url}, "secrets": list(KEYS), "nodes": 2}
    to = "s3://data/pods/checkpoints"
    first, text = finished(bench, checkpoints={"to": to, "keep": 1}, retries={"count": 1, "backoff": "0s"}, **given)
    assert first.phase == "succeeded" and first.attempt == 1, text
    assert not [notice for notice in bench.notices if "no storage" in notice]
    url = f"{to}/{first.name}-{first.uid[:8]}"
    for rank in range(2):
        assert f"rank {rank} from 0\n" in text and f"rank {rank} from 2\n" in text
    assert (first.checkpoint_dir, first.checkpoint) == (url, f"{url}/step-4")
    assert first.attempts[1].resumed_from == f"{url}/step-2"
    mirror = Mirror(url, store.environment)
    assert mirror.complete() == [(4, "step-4")]
    assert KEYS["AWS_SECRET_ACCESS_KEY"] not in text
    with pytest.raises(NotFound, match=f"its checkpoints are in {url}"):
        bench.engine.copy_from(first.name, "checkpoints", tmp_path / "copy")

    second, text = finished(bench, checkpoints={"resume": first.name}, **given)
    assert second.phase == "succeeded" and text.count("from 4\n") == 2, text
    bench.engine.delete(second.name, purge=True)

    del bench.environment["AWS_SECRET_ACCESS_KEY"]
    bench.engine.close()
    bench.engine = bench.open()
    with pytest.raises(EngineError, match=f"the checkpoints in {url} cannot be removed"):
        bench.engine.delete(first.name, purge=True)
    assert bench.engine.status(first.name).phase == "succeeded"
    bench.environment.update(KEYS)
    bench.engine.close()
    bench.engine = bench.open()
    with pytest.raises(EngineError, match="told by AWS_ENDPOINT_URL which server this is"):
        bench.engine.delete(first.name, purge=True)
    bench.environment["AWS_ENDPOINT_URL"] = store.url  # a record does not decide where credentials go
    bench.engine.close()
    bench.engine = bench.open()
    bench.engine.delete(first.name, purge=True)
    assert mirror.complete() == []


JUDGED = """
import os, sys, longboat

if sys.argv[1] == "train":
    for step in (1, 2, 3):
        with longboat.checkpoint(step) as folder:
            open(os.path.join(folder, "step"), "w").write(str(step))
else:
    for step, folder in longboat.new_checkpoints():
        print("evaluates", open(os.path.join(folder, "step")).read(), flush=True)
        longboat.evaluated(step, accuracy=1.0 / step)
    print("ends", flush=True)
"""


def test_an_evaluator_in_a_pod_of_its_own_follows_to_the_last(store: Running, bench: Bench) -> None:
    """It has no folder in common with the training, which is over before the store has its last checkpoint."""
    bench.environment.update({**ALONE, **KEYS})
    roles = {"worker": {"run": "python train.py train"}, "evaluator": {"run": "python train.py judge"}}
    keep = {"last": 3, "best": 1, "metric": "accuracy"}
    given: dict[str, Any] = {"env": {"AWS_ENDPOINT_URL": store.url}, "secrets": list(KEYS), "grace": "60s"}
    submission = bench.submission(
        JUDGED, run=None, roles=roles, checkpoints={"to": "s3://data/judged", "keep": keep}, **given
    )
    name = bench.engine.submit(submission).name
    status = bench.engine.wait(name, timeout_s=LONG_S)
    text = b"".join(line.data for line in bench.engine.logs(name, LogQuery())).decode()
    assert status.phase == "succeeded", text
    lines = [line for line in text.splitlines() if line.startswith(("evaluates", "ends"))]
    assert lines == ["evaluates 1", "evaluates 2", "evaluates 3", "ends"], text
    entries = StorePlace(str(status.checkpoint_dir), store.environment).entries()
    assert [(entry.step, entry.metrics) for entry in entries] == [(n, {"accuracy": 1.0 / n}) for n in (1, 2, 3)]

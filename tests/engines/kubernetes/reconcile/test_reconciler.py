"""Turns taken by processes that die, or that lose the API server: the run ends as it should, and nothing runs twice."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from longboat.core.runs import LogQuery, RunStatus
from longboat.engines.kubernetes.engine import KubernetesEngine
from longboat.kubeapi.kinds import JOB, SECRET
from testbed.clusters import Cluster
from testbed.proxy import ApiProxy
from tests.engines.kubernetes.benches import Bench

pytestmark = pytest.mark.pods

TWICE = """
import os, sys, time
print("attempt", os.environ["LONGBOAT_ATTEMPT"], "rank", os.environ["RANK"], flush=True)
mark = "/tmp/said-" + os.environ["LONGBOAT_ATTEMPT"]  # both are in one pod; who fails ends the other
if os.environ["RANK"] == "0":
    open(mark, "w").close()
while not os.path.exists(mark):
    time.sleep(0.01)
sys.exit(3 if os.environ["LONGBOAT_ATTEMPT"] == "0" and os.environ["RANK"] == "1" else 0)
"""


class Killed(BaseException):
    """The process is gone in this moment: nothing it would do afterwards is done."""


def make_mortal(engine: KubernetesEngine, writes: int) -> None:
    """Have the engine die when its so many-th write has reached the server, before it knows."""
    client, left = engine.client, [writes]
    ask = client.request

    def request(method: str, path: str, **options: Any) -> bytes:
        if left[0] <= 0:
            raise Killed
        answer = ask(method, path, **options)
        if method != "GET" and (options.get("query") or {}).get("dryRun") is None:
            left[0] -= 1
            if left[0] <= 0:
                raise Killed
        return answer

    client.request = request  # type: ignore[method-assign]


def test_a_driver_that_dies_after_every_single_write(bench: Bench) -> None:
    run = bench.engine.submit(bench.submission(TWICE, procs=2, retries={"count": 1, "backoff": "0s", "restart": "new"}))
    ended: RunStatus | None = None
    deaths = 0
    while ended is None:
        engine = bench.open()
        make_mortal(engine, 1)
        try:
            ended = engine.wait(run.name, timeout_s=90)
        except Killed:
            deaths += 1
            assert deaths < 60
        finally:
            engine.close()
    assert deaths > 3
    assert (ended.phase, ended.exit_code, ended.attempt) == ("succeeded", 0, 1), ended.reason
    said = sorted(line.data.decode() for line in bench.engine.logs(run.name, LogQuery()))
    assert said == [f"attempt {attempt} rank {rank}\n" for attempt in range(2) for rank in range(2)]
    assert len(bench.engine.client.list(JOB, labels="longboat.dev/run=job").items) == 2


def test_an_object_in_the_way_of_an_attempt_may_be_of_somebody_who_makes_it(bench: Bench) -> None:
    """Another version of Longboat that makes the same attempt writes its gang file a little differently."""
    client = bench.engine.client
    run = bench.engine.submit(
        bench.submission("raise SystemExit(3)", retries={"count": 1, "backoff": "3s", "restart": "new"})
    ).name
    first = client.get(SECRET, f"{run}-a0")
    metadata = {"name": f"{run}-a1", "ownerReferences": first["metadata"]["ownerReferences"]}
    client.create({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": first["data"]})
    ended: list[RunStatus] = []
    other = bench.open()
    waiting = threading.Thread(target=lambda: ended.append(other.wait(run, timeout_s=90)))
    waiting.start()
    while other.status(run).attempt == 0:
        waiting.join(0.1)
    waiting.join(5.0)
    assert waiting.is_alive(), ended
    client.delete(SECRET, f"{run}-a1")
    waiting.join()
    other.close()
    assert (ended[0].phase, ended[0].exit_code, len(ended[0].attempts)) == ("failed", 3, 2), ended[0].reason


def test_a_follower_that_dies_leaves_a_run_that_ends(bench: Bench) -> None:
    """Nobody takes turns while the gang runs and ends; whoever looks next finds out."""
    run = bench.engine.submit(bench.submission("import time; time.sleep(1); raise SystemExit(5)"))
    bench.engine.close()
    ended = bench.open().wait(run.name, timeout_s=90)
    assert (ended.phase, ended.exit_code) == ("failed", 5)


def test_watches_that_break_and_a_server_that_is_busy(
    cluster: Cluster, namespace: str, tmp_path: Path, api_proxy: ApiProxy
) -> None:
    bench = Bench(cluster, namespace, tmp_path, Path(api_proxy.kubeconfig))
    api_proxy.drop_watches_every(1)
    api_proxy.answer(429, share=0.25, retry_after=1)
    run = bench.engine.submit(bench.submission("import time; time.sleep(3); raise SystemExit(6)", nodes=2))
    ended = bench.engine.wait(run.name, timeout_s=120)
    assert (ended.phase, ended.exit_code) == ("failed", 6), ended.reason
    api_proxy.restore()
    bench.close()


def test_a_server_that_is_away_for_a_while(
    cluster: Cluster, namespace: str, tmp_path: Path, api_proxy: ApiProxy
) -> None:
    bench = Bench(cluster, namespace, tmp_path, Path(api_proxy.kubeconfig))
    run = bench.engine.submit(bench.submission("import time; time.sleep(2); print('done')"))
    api_proxy.cut()
    back = threading.Timer(4.0, api_proxy.restore)
    back.start()
    assert bench.engine.wait(run.name, timeout_s=90).phase == "succeeded"
    back.join()
    bench.close()

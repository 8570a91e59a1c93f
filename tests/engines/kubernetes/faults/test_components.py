"""Parts of the cluster that fail under a running gang: the API server, etcd, a kubelet."""

from __future__ import annotations

import threading

import pytest

from longboat.core.runs import LogQuery
from testbed import faults
from tests.engines.kubernetes.faults.grounds import LONG_S, Ground

pytestmark = [
    pytest.mark.pods,
    pytest.mark.soak,
    pytest.mark.xdist_group("own-cluster"),
    pytest.mark.parametrize("flavour", ["job", "jobset", "kueue"]),
]


def test_the_api_server_is_restarted(own_ground: Ground) -> None:
    """Somebody waits and somebody follows the log meanwhile; neither notices."""
    own_ground.submit(nodes=2)
    own_ground.until_started(ranks=2)
    lines: list[str] = []

    def follow() -> None:
        engine = own_ground.open()
        lines.extend(line.data.decode() for line in engine.logs("job", LogQuery(follow=True)) if line.rank == 0)
        engine.close()

    ended = []
    waiting = [
        threading.Thread(target=follow, daemon=True),
        threading.Thread(target=lambda: ended.append(own_ground.wait(engine=own_ground.open())), daemon=True),
    ]
    for thread in waiting:
        thread.start()
    own_ground.until(lambda: len(lines) > 2, "the log is followed")
    faults.restart(own_ground.cluster, "kube-apiserver")
    own_ground.let_go(0, 0, 5)
    for thread in waiting:
        thread.join(LONG_S)
    assert [(run.phase, run.exit_code) for run in ended] == [("failed", 5)]
    numbers = [int(line.split()[1]) for line in lines if line.startswith("line ")]
    assert numbers == list(range(1, len(numbers) + 1)) and lines[-1] == "last 0\n"
    own_ground.check_book(ranks=2)
    own_ground.remove()


def test_etcd_is_slow(own_ground: Ground) -> None:
    """It works for 10 ms of every 100, from the submission to the removal."""
    with faults.slowed(own_ground.cluster, "etcd", 0.9):
        own_ground.submit(nodes=2, retries={"count": 1, "backoff": "0s"})
        own_ground.until_started(ranks=2)
        own_ground.let_go(0, 3, 0)
        own_ground.let_go(1, 0, 0)
        ended = own_ground.wait()
        assert (ended.phase, ended.exit_code, len(ended.attempts)) == ("succeeded", 0, 2), ended.reason
        own_ground.check_book(ranks=2, attempts=2)
        own_ground.remove()


def test_a_kubelet_is_killed_and_comes_back_after_the_ranks_have_ended(own_ground: Ground) -> None:
    own_ground.submit(nodes=2)
    own_ground.until_started(ranks=2)
    for number in (0, 1):
        faults.kill(own_ground.cluster, f"node-{number}-kubelet")
    own_ground.let_go(0, 0, 9)
    own_ground.until(lambda: len(own_ground.signed("end")) == 2, "the ranks end")
    for number in (0, 1):
        faults.start(own_ground.cluster, f"node-{number}-kubelet")
    ended = own_ground.wait()
    assert (ended.phase, ended.exit_code) == ("failed", 9), ended.reason
    own_ground.check_book(ranks=2)
    own_ground.remove()

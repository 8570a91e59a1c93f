"""A node with a notice of termination: its run saves, and an elastic one has left it before it goes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from testbed import api
from tests.engines.kubernetes.controlling import state_of
from tests.engines.kubernetes.faults.grounds import Ground
from tests.engines.kubernetes.faults.losses import driven, prepare

pytestmark = [pytest.mark.pods, pytest.mark.xdist_group("own-cluster"), pytest.mark.parametrize("flavour", ["job"])]

SPOT = "aws-node-termination-handler/spot-itn"
TRAINS = """
import os, time
import longboat
rank, world = longboat.rank(), longboat.world_size()
resumed = os.path.basename(longboat.resume_from() or "")
print(f"rank {rank} of {world} from {resumed!r}", flush=True)
def sign(word):
    with open("/book/signed", "a") as book:
        book.write(f"{world} {rank} {word}\\n")
sign("start")
step = int(resumed.partition("-")[2] or 0)
while not longboat.should_stop() and not os.path.exists(f"/book/go-{world}"):
    time.sleep(0.05)
    step += 1
    if longboat.should_save():
        sign("asked")
        with longboat.checkpoint(1000) as folder:
            open(folder + "/weights", "w").close()
"""
"""It signs with the number of its ranks in place of the attempt."""
TERM = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"longboat.dev/run": "job"}}}
APART = {"spec": {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [TERM]}}}}


@contextlib.contextmanager
def noticed(ground: Ground, node: str) -> Iterator[None]:
    """As a node termination handler does on a machine that is taken back."""
    path = api.path_of("Node", "v1", name=node)
    ground.api.close()
    ground.api.merge(path, {"spec": {"taints": [{"key": SPOT, "effect": "NoSchedule"}]}})
    try:
        yield
    finally:
        ground.api.close()
        ground.api.merge(path, {"spec": {"taints": None}})


@pytest.mark.parametrize("how", ["attached", "controller"])
def test_an_elastic_run_saves_and_moves_to_what_is_left(own_ground: Ground, how: str) -> None:
    prepare(own_ground, APART)
    own_ground.submit(code=TRAINS, nodes="1-2")
    with driven(own_ground, how):
        own_ground.until_started(ranks=2, attempt=2)
        with noticed(own_ground, "node-1"):
            own_ground.until_started(ranks=1, attempt=1)
            own_ground.let_go(1)
            ended = own_ground.wait()
    assert (ended.phase, ended.retries, [each.size for each in ended.attempts]) == ("succeeded", 0, [2, 1]), ended
    assert ended.attempts[0].resized == f"moves: node node-1 is about to go (taint {SPOT})"
    assert sorted(own_ground.signed("asked")) == [(2, 0), (2, 1)], "once each, and nobody in the next attempt"
    assert "rank 0 of 1 from 'step-1000'" in own_ground.lines()
    own_ground.remove()


def test_a_run_of_one_size_saves_and_says_so(own_ground: Ground) -> None:
    prepare(own_ground, APART)
    own_ground.submit(code=TRAINS, nodes=2)
    own_ground.until_started(ranks=2, attempt=2)
    with noticed(own_ground, "node-1"), driven(own_ground, "attached"):
        own_ground.until(lambda: len(own_ground.signed("asked")) == 2, "its ranks are asked")
        state = state_of(own_ground.engine.client, "job")
        assert state.phase == "running" and f"node node-1 is about to go (taint {SPOT})" in state.reason
        (trouble,) = own_ground.engine.status("job").node_troubles
        assert trouble.node == "node-1" and "is about to go" in trouble.what
        own_ground.let_go(2)
    ended = own_ground.wait()
    assert (ended.phase, len(ended.attempts)) == ("succeeded", 1), ended.reason
    own_ground.remove()

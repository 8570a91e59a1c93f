"""The gate on a simulated cluster: the real API server, scheduler and Job controller; nodes by KWOK that run nothing.

A small loop of this file lets plain Jobs in and puts them back as `decide_gate` says.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any

import pytest

from longboat.engines.kubernetes.gate.decide import Admission, ClusterUsage, GateCandidate, decide_gate
from longboat.engines.kubernetes.gate.node_usage import observe_room
from longboat.engines.kubernetes.slim_objects import SlimPod
from longboat.fitting.model.pods import pod_of
from longboat.kubeapi.client import Client
from longboat.kubeapi.kinds import JOB, NODE, POD
from longboat.kubeapi.leases import GATE, Lease
from testbed import api, stages

pytestmark = [pytest.mark.cluster, pytest.mark.soak]

GATE_S = 120.0

GPU = "nvidia.com/gpu"
RUN, INDEX = "longboat.dev/run", "batch.kubernetes.io/job-completion-index"
WITHIN_S = 900.0
Body = dict[str, Any]


def template(name: str, gpus: int, run_for: str) -> Body:
    container = {"name": "main", "image": "x", "resources": {"limits": {GPU: str(gpus)}}}
    return {
        "metadata": {"labels": {RUN: name}, "annotations": {stages.PREFIX + "run-for": run_for}},
        "spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "containers": [container]},
    }


def job(name: str, count: int, gpus: int = 1, *, run_for: str = "1s", suspend: bool = True) -> Body:
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "labels": {RUN: name}},
        "spec": {
            "suspend": suspend,
            "completions": count,
            "parallelism": count,
            "completionMode": "Indexed",
            "backoffLimit": 0,
            "podReplacementPolicy": "Failed",
            "template": template(name, gpus, run_for),
        },
    }


class Gang:
    """One Job and what the gate knows about it."""

    def __init__(self, number: int, body: Body, let_in: float | None = None) -> None:
        self.name = body["metadata"]["name"]
        self.number = number
        self.size = int(body["spec"]["completions"])
        meta = {"name": "", "namespace": "", "labels": {RUN: self.name}}
        shape = {**body["spec"]["template"], "metadata": meta}
        self.pods = tuple(pod_of({**shape, "metadata": {**meta, "name": f"worker-{one}"}}) for one in range(self.size))
        self.let_in = let_in
        self.tries = 0
        self.not_before = 0.0
        self.is_done = False
        self.partial_since: float | None = None

    def candidate(self, pods: list[SlimPod], namespace: str) -> GateCandidate:
        seen = [(one, pod_of(one)) for one in pods]
        placed = tuple(f"worker-{_index(body)}" for body, pod in seen if pod.node or pod.is_finished)
        return GateCandidate(
            run=self.name,
            uid=self.name,
            namespace=namespace,
            created=float(self.number),
            pods=self.pods,
            let_in=self.let_in,
            gate_s=GATE_S,
            tries=self.tries,
            not_before=self.not_before,
            placed=placed,
            made=len(pods),
            ready=sum(pod.is_ready or pod.is_finished for _, pod in seen),
            unschedulable=sum(pod.is_unschedulable and pod.node is None for _, pod in seen),
        )

    def watch(self, pods: list[SlimPod], now: float) -> float:
        """How long it has held GPUs without having all its pods bound."""
        bound = len({_index(body) for body in pods if body["spec"].get("nodeName")})
        is_partial = 0 < bound < self.size
        if not is_partial:
            self.partial_since = None
            return 0.0
        self.partial_since = now if self.partial_since is None else self.partial_since
        return now - self.partial_since


def _index(body: SlimPod) -> str:
    return body["metadata"]["labels"].get(INDEX, "")


class Porter:
    """Takes turns at the gate until all gangs are done. `speed` makes the gate's clock run faster than the wall's."""

    def __init__(self, client: Client, gangs: list[Gang], *, speed: float = 1.0) -> None:
        self.client = client
        self.gangs = {gang.name: gang for gang in gangs}
        self.speed = speed
        self.began = time.monotonic()
        self.longest = 0.0
        self.let_in: list[str] = []
        self.put_back: list[str] = []
        self.reasons: set[str] = set()

    def now(self) -> float:
        return (time.monotonic() - self.began) * self.speed

    def turn(self) -> None:
        jobs = {one["metadata"]["name"]: one for one in self.client.list(JOB).items}
        pods: dict[str, list[SlimPod]] = {}
        for one in self.client.list(POD, into=SlimPod).items:
            if "deletionTimestamp" not in one["metadata"]:
                pods.setdefault(one["metadata"]["labels"].get(RUN, ""), []).append(one)
        now = self.now()
        for gang in self.open():
            conditions = (jobs[gang.name].get("status") or {}).get("conditions") or []
            gang.is_done = any(one["type"] == "Complete" and one["status"] == "True" for one in conditions)
            assert not any(one["type"] == "Failed" for one in conditions), conditions
            if not gang.is_done:
                self.longest = max(self.longest, gang.watch(pods.get(gang.name, []), now))
        lease = Lease(self.client, self.client.namespace, GATE, "porter")
        while not lease.try_hold():
            time.sleep(0.1)
        self.decide(pods, now)
        lease.release()

    def decide(self, pods: dict[str, list[SlimPod]], now: float) -> None:
        room = self.room()
        candidates = [gang.candidate(pods.get(gang.name, []), self.client.namespace) for gang in self.open()]
        for verdict in decide_gate(candidates, room, now):
            self.act(self.gangs[verdict.run], verdict, now)

    def room(self) -> ClusterUsage | None:
        return observe_room(self.client, with_claims=False)

    def act(self, gang: Gang, verdict: Admission, now: float) -> None:
        if verdict.action == "wait":
            self.reasons.add(verdict.reason)
        if verdict.action == "let_in":
            gang.let_in = now
            self.let_in.append(gang.name)
            self.client.patch(JOB, gang.name, {"spec": {"suspend": False}})
        elif verdict.action == "put_back":
            gang.let_in, gang.tries, gang.not_before = None, verdict.tries, verdict.not_before
            self.put_back.append(gang.name)
            self.client.patch(JOB, gang.name, {"spec": {"suspend": True}})

    def open(self) -> list[Gang]:
        return [gang for gang in self.gangs.values() if not gang.is_done]

    def until_done(self, meanwhile: Callable[[], None] = lambda: None) -> None:
        def is_done() -> bool:
            self.turn()
            meanwhile()
            return not self.open()

        api.wait_for("all gangs are done", is_done, WITHIN_S, every_s=0.1)


def submit(client: Client, *bodies: Body) -> list[Gang]:
    for body in bodies:
        client.create(body)
    return [Gang(number, body) for number, body in enumerate(bodies)]


def test_two_gangs_of_five_on_eight_gpus(client: Client, kwok_nodes: Callable[..., list[str]]) -> None:
    kwok_nodes("1:h100x8")
    porter = Porter(client, submit(client, job("first", 5), job("second", 5)))
    porter.until_done()
    assert porter.let_in == ["first", "second"] and not porter.put_back
    assert "waits for 5 GPUs (5 x 1): 3 free of 8; held by first" in porter.reasons


def test_two_gangs_that_block_each_other_are_put_back_and_both_finish(
    client: Client, kwok_nodes: Callable[..., list[str]]
) -> None:
    """Somebody let both in at once: each holds 4 of 8 GPUs and would wait for its fifth for ever."""
    kwok_nodes("1:gpus=4")
    (late,) = kwok_nodes("1:gpus=4")
    client.patch(NODE, late, {"spec": {"taints": [{"key": "late", "effect": "NoSchedule"}]}})
    first, second = job("first", 5, suspend=False), job("second", 5, suspend=False)
    second["spec"]["template"]["spec"]["tolerations"] = [{"key": "late", "operator": "Exists"}]
    for body in (first, second):
        body["spec"]["template"]["metadata"]["annotations"] = {}  # they run until they are deleted
        client.create(body)
        name = body["metadata"]["name"]
        api.wait_for(f"{name} holds 4 GPUs", lambda name=name: _bound(client, name) == 4, 120.0)
    client.patch(NODE, late, {"spec": {"taints": []}})

    gangs = [Gang(number, body, let_in=0.0) for number, body in enumerate((first, second))]
    porter = Porter(client, gangs, speed=30.0)
    for name in ("first", "second"):
        _turns_until_whole(porter, name)
        # One after the other: the second can only be complete when the first is gone.
        client.delete(JOB, name)
        del porter.gangs[name]
    assert set(porter.put_back) == {"first", "second"}


def _turns_until_whole(porter: Porter, name: str) -> None:
    def is_whole() -> bool:
        porter.turn()
        return _bound(porter.client, name) == 5

    api.wait_for(f"{name} has all its pods", is_whole, 300.0, every_s=0.1)


def _bound(client: Client, run: str = "") -> int:
    pods = client.list(POD, into=SlimPod, labels=f"{RUN}={run}" if run else "").items
    return sum(bool(one["spec"].get("nodeName")) and "deletionTimestamp" not in one["metadata"] for one in pods)


def test_two_hundred_gangs_never_hold_gpus_in_vain(client: Client, kwok_nodes: Callable[..., list[str]]) -> None:
    """Sizes 1 to 8, two kinds of nodes, and pods of others that take GPUs without asking the gate."""
    kwok_nodes("6:h100x8")
    kwok_nodes("4:t4x4")
    chance = random.Random(7)
    bodies = []
    for number in range(200):
        each = chance.choice([1, 1, 1, 2, 4])
        bodies.append(job(f"gang-{number}", chance.randint(1, min(8, 32 // each)), each))
    porter = Porter(client, submit(client, *bodies))
    intruders = iter(range(20))

    def intrude() -> None:
        number = next(intruders, None)
        if number is not None and chance.random() < 0.3:
            body = template(f"intruder-{number}", 2, "1s")
            meta = {"annotations": body["metadata"]["annotations"], "labels": {"app": "intruder"}}
            client.create({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"intruder-{number}", **meta},
                           "spec": body["spec"]})  # fmt: skip

    porter.until_done(intrude)
    assert len(set(porter.let_in)) == 200
    assert porter.longest < GATE_S, "a gang held GPUs for longer than the gate allows, without all its pods"
    assert any("before it" in reason for reason in porter.reasons)

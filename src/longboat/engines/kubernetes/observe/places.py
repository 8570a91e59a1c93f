"""Pods to nodes of a gang: where a spare has taken the place of a lost member, their pods have exchanged nodes. Pure.

Node 0's launcher decides it (`launcher.gang.spares`); here it is followed from what attempts are known to have begun
with, for whoever looks. What is read comes from launchers and records, which others write: no name counts that is not
one of the job's pods.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from longboat.core.jobs import Job
from longboat.core.runs import Attempt, RankStatus
from longboat.engines.kubernetes.observe.snapshot import RunSnapshot
from longboat.engines.kubernetes.records import all_pods, expected_nodes, node_of_rank


def places_at(job: Job, attempts: Iterable[Attempt], number: int) -> dict[str, str]:
    """Pod -> node of an attempt, where they differ; both are called `worker-1`."""
    if not job.spares:
        return {}
    nodes, pods = set(expected_nodes(job)), set(all_pods(job))
    places: dict[str, str] = {}
    for attempt in sorted(attempts, key=lambda each: each.number):
        if attempt.number > number:
            break
        if attempt.restart != "in-place":
            places = {}  # its pods are new
        for node, spare in attempt.spares.items():
            if node in nodes and spare in pods and node.rpartition("-")[0] == spare.rpartition("-")[0]:
                lost = pod_playing(node, places)
                places[spare], places[lost] = node, places.get(spare, spare)
    return {pod: node for pod, node in places.items() if pod != node}


def pod_playing(node: str, places: Mapping[str, str]) -> str:
    return next((pod for pod, played in places.items() if played == node), node)


def as_played(snapshot: RunSnapshot, attempts: Iterable[Attempt], number: int) -> RunSnapshot:
    """The run with the pods of the attempt under way called after the nodes that they play in attempt `number`."""
    places = places_at(snapshot.record.job, attempts, number)
    if not places:
        return snapshot
    pods = [
        msgspec.structs.replace(pod, index=int(places.get(pod.node, pod.node).rpartition("-")[2]))
        if pod.attempt == snapshot.state.attempt
        else pod
        for pod in snapshot.pods
    ]
    return msgspec.structs.replace(snapshot, pods=tuple(pods))


def in_their_places(job: Job, ranks: Iterable[RankStatus]) -> list[RankStatus]:
    """Ranks under the nodes that they belong to, once each: one that runs rather than one that has ended."""
    if not job.spares:
        return list(ranks)
    known: dict[int, RankStatus] = {}
    for rank in ranks:
        place = node_of_rank(job, rank.rank)
        if place is not None and (rank.rank not in known or rank.alive):
            known[rank.rank] = msgspec.structs.replace(rank, role=place[0], node=place[1])
    return list(known.values())

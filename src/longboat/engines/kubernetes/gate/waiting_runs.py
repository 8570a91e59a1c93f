"""The runs that the gate concerns, as candidates of its decision: made of their records and what there is of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from longboat.core.elastic.sizes import MOST_RESIZES, elastic_role, is_elastic, offered_sizes, sized
from longboat.engines.kubernetes.gate.decide import GateCandidate
from longboat.engines.kubernetes.gate.node_usage import bound_claims
from longboat.engines.kubernetes.gate.sizes import ElasticPods
from longboat.engines.kubernetes.manifests.gang_pods import gang_pods
from longboat.engines.kubernetes.observe.snapshot import PodView, WorkloadView, pods_of_gang
from longboat.engines.kubernetes.records import Record, State
from longboat.fitting.model.pods import Claims
from longboat.kubeapi.client import Client

START_S = 120.0
"""A run's `timeout` counts from when all of it runs: images are pulled before that, ranks have their grace after."""


class WaitingRun(msgspec.Struct, frozen=True):
    """A run that is not final, with what there is of its attempt."""

    record: Record
    state: State
    version: str
    made: float  # when the record was created, by the server's clock
    workloads: tuple[WorkloadView, ...]
    pods: tuple[PodView, ...] = ()  # that have not ended, of a run that is in
    unschedulable: int = 0
    ended: tuple[PodView, ...] = ()  # looked for only where a run that is in lacks pods

    @property
    def is_in(self) -> bool:
        return any(not workload.is_suspended for workload in self.workloads)

    @property
    def lacks_pods(self) -> bool:
        return self.is_in and len({pod.node for pod in self.pods}) < self.record.job.pods

    def with_ended(self, pods: Sequence[PodView]) -> WaitingRun:
        ended = tuple(pod for pod in pods_of_gang(self.record, pods).present if pod.attempt == self.state.attempt)
        return msgspec.structs.replace(self, ended=ended)


def created_within(stated: float, stamped: float | None) -> float:
    """When a run was made, for its place in the order: the record's word within the second that the server noted."""
    return stated if stamped is None else min(max(stated, stamped), stamped + 1)


def observe_claims(client: Client, runs: Iterable[WaitingRun]) -> Claims:
    """Node affinity of the volumes behind the runs' claims; empty without the right to list them."""
    storages = [run.record.storage for run in runs]
    volumes = [volume for run in runs for volume in run.record.job.volumes]
    is_needed = any(storage is not None and storage.claim for storage in storages) or any(
        volume.claim for volume in volumes
    )
    return bound_claims(client) if is_needed else {}


def candidate_of(run: WaitingRun, now: float, claims: Claims) -> GateCandidate | None:
    """None for a run whose pods cannot be built from its record: its own turn reports why."""
    record, state = run.record, run.state
    try:
        pods = gang_pods(record, state.attempt, claims)
        elastic = elastic_pods(record, state, claims)
    except Exception:  # what a stranger wrote into a record may fail anywhere
        return None
    let_in = (state.gate.let_in or now) if run.is_in else None
    return GateCandidate(
        run=record.name,
        uid=record.uid,
        created=run.made,
        pods=pods,
        spares=record.job.spares,
        namespace=record.namespace,
        priority=record.priority,
        let_in=let_in,
        tries=state.gate.tries,
        not_before=max(state.gate.not_before, state.not_before) if let_in is None else 0.0,
        is_recovering=_is_recovering(record, state),
        placed=tuple(pod.node for pod in (*run.ended, *(pod for pod in run.pods if pod.is_scheduled))),
        made=len(run.pods) + len(run.ended),
        ready=sum(pod.is_started for pod in run.pods) + len(run.ended),
        unschedulable=0 if state.phase == "running" else run.unschedulable,  # a pod that is replaced: none is put back
        gate_s=record.gate_s,
        # A negative timeout would end before the start, and always backfill.
        elastic=elastic,
        lasts_s=None if record.job.timeout_s is None else max(record.job.timeout_s, 0.0) + START_S,
    )


def _is_recovering(record: Record, state: State) -> bool:
    """Whether it had its place before. An elastic run that has only been given a size had none."""
    return state.attempt > 0 and (not is_elastic(record.job) or any(each.ended for each in state.attempts))


def elastic_pods(record: Record, state: State, claims: Claims) -> ElasticPods | None:
    role = elastic_role(record.job)
    if role is None or state.resizes >= MOST_RESIZES:
        return None
    largest = msgspec.structs.replace(record, job=sized(record.job, None))
    return ElasticPods(
        role=role.name,
        size=role.nodes,
        offered=tuple(sorted({*offered_sizes(record.job), role.nodes})),
        pods=gang_pods(largest, state.attempt, claims),
        fits=state.gate.fits,
        grows=record.job.grow != "never",
    )

"""Explanation of a run: why it waits, or its post-mortem; this module reads what others put into words.

The words are in `explanations` (the same on every engine), `pod_failures`, `pending` and `network_policies`; this
module only looks. What may not be read is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import msgspec

from longboat.core.runs import Explanation, Failure, RunStatus
from longboat.core.times import show_age
from longboat.core.words import listing
from longboat.engines.kubernetes import names
from longboat.engines.kubernetes.explain.containers import StartTrouble
from longboat.engines.kubernetes.explain.network_policies import blocking_policies
from longboat.engines.kubernetes.explain.pending import PendingFacts, event_time, troubles
from longboat.engines.kubernetes.explain.pod_failures import pod_failures
from longboat.engines.kubernetes.logs.lines import Parser, batches
from longboat.engines.kubernetes.observe.node_loss import is_reachable
from longboat.engines.kubernetes.observe.snapshot import RunSnapshot
from longboat.engines.kubernetes.records import is_chained
from longboat.engines.kubernetes.slim_objects import UNFINISHED, BoundPod, SlimNode
from longboat.engines.kubernetes.status import expiry_words, full_status
from longboat.engines.shared.advice import ADVICE
from longboat.engines.shared.explanations import explain_status
from longboat.kubeapi import kinds
from longboat.kubeapi.client import Client
from longboat.kubeapi.errors import ApiError

Object = Mapping[str, Any]
T = TypeVar("T")

CLUSTER_ADVICE: Mapping[str, str] = {
    **ADVICE,
    "peers": "longboat logs RUN: the launchers say whom they could not reach; look for NetworkPolicies and the DNS",
    "signal": "SIGKILL without our doing is often a memory limit: look at `memory`",
    "preemption": "set `retries` to have the run taken up again from its newest checkpoint",
    "image": "try the image by hand: kubectl run try --rm -it --image IMAGE -- python3 --version",
}
SLICE = kinds.Kind("EndpointSlice", "discovery.k8s.io/v1", "endpointslices")
SETUP_LINES = 15  # an error of pip with what it was about
LOG_S = 5.0
"""For so long a node is waited for that has the log of a failed setup."""
BOUND = f"spec.nodeName!=,{UNFINISHED}"


def explain_with_files(
    client: Client, snapshot: RunSnapshot, status: RunStatus, environment: Mapping[str, str]
) -> Explanation:
    """`explain`, and which files a failed run lacked because they were no part of its code."""
    explanation = explain(client, snapshot, status)
    failures = [attempt.failure for attempt in status.attempts if attempt.failure is not None]
    if status.phase != "failed" or not failures:
        return explanation
    from longboat.engines.shared.code_snapshot import with_missed_files
    from longboat.engines.shared.home import Home

    run_of = (snapshot.record.bundle, snapshot.record.job, failures[-1])
    return with_missed_files(explanation, Home(environment=environment), run_of, is_cluster=True)


def explain(client: Client, snapshot: RunSnapshot, status: RunStatus | None = None) -> Explanation:
    """What happened to the run, or what it waits for."""
    status = status or full_status(client, snapshot)
    failures = [attempt.failure for attempt in status.attempts if attempt.failure is not None]
    failure = failures[-1] if failures else None
    setup_log = setup_tail(client, snapshot) if failure is not None and failure.cause == "setup" else ()
    explanation = explain_status(status, failure, setup_log, CLUSTER_ADVICE)
    if status.expired is not None:
        return _with(explanation, (), (*snapshot.state.facts, expiry_words(snapshot.record, snapshot.state)))
    with ThreadPoolExecutor(8, thread_name_prefix="explain") as pool:
        look = RunInspector(client, snapshot, pool)
        if status.phase == "failed":
            return _with(explanation, look.post_mortem(failure), snapshot.state.facts)
        if status.next_attempt is not None:
            left_s = max(0.0, status.next_attempt - client.now())
            return _with(explanation, (), (f"attempt {status.attempt + 1} starts in {left_s:.0f} s",))
        if status.phase in ("pending", "starting", "recovering"):
            facts = (*node_facts(status, client.now()), *_passing(snapshot))
            return _with(explanation, look.waiting(), facts)
    if status.phase == "running":
        return _with(explanation, (), (*node_facts(status, client.now()), *_passing(snapshot)))
    return explanation


def node_facts(status: RunStatus, now: float) -> list[str]:
    """What speaks against nodes of a run that goes on. Pure."""
    facts = []
    for trouble in status.node_troubles:
        since = f", for {show_age(max(0.0, now - trouble.since))}" if trouble.since is not None else ""
        where = f"node {trouble.node} ({listing(trouble.members, 3)}) {trouble.what}{since}"
        facts.append(f"{where}: {trouble.follows}")
    return facts


def _passing(snapshot: RunSnapshot) -> tuple[str, ...]:
    """Why the gate let it in before others that have waited for longer."""
    gate = snapshot.state.gate
    return (gate.reason,) if gate.let_in is not None and gate.reason else ()


def _with(explanation: Explanation, start_troubles: Sequence[StartTrouble], facts: Iterable[str]) -> Explanation:
    """The explanation with what the cluster adds to it."""
    words = [trouble.what for trouble in start_troubles if trouble.what not in explanation.headline]
    hints = [trouble.hint for trouble in start_troubles if trouble.hint]
    return msgspec.structs.replace(
        explanation,
        facts=tuple(dict.fromkeys([*explanation.facts, *words, *facts])),
        next_steps=tuple(dict.fromkeys([*explanation.next_steps, *hints])),
    )


class RunInspector:
    """Reads everything that may explain a run, in parallel."""

    def __init__(self, client: Client, snapshot: RunSnapshot, pool: ThreadPoolExecutor) -> None:
        self.client = client
        self.snapshot = snapshot
        self.pool = pool
        self.run = snapshot.record.name
        self.attempt = snapshot.state.attempt

    def post_mortem(self, failure: Failure | None) -> list[StartTrouble]:
        pods, events, nodes = self._together(self.pods, self.events, self.nodes)
        by_name = None if nodes is None else {str(node["metadata"]["name"]): node for node in nodes}
        preempted = any(event.get("reason") == "Preempted" for event in events or ())
        start_troubles = pod_failures(
            pods or (),
            events or (),
            nodes=by_name,
            owners=pod_names(self.client) if preempted else {},
            report=failure.rank if failure is not None else None,
        )
        if failure is not None and failure.cause in ("peers", "lost"):
            start_troubles += self.network(pods or ())
        return start_troubles

    def waiting(self) -> list[StartTrouble]:
        facts = self.pending_facts()
        start_troubles = troubles(facts)
        return start_troubles + self.network(facts.pods) if facts.missing else start_troubles

    def pending_facts(self) -> PendingFacts:
        pods, jobs, events, nodes, others, claims, workloads = self._together(
            self.pods, self.jobs, self.events, self.nodes, self.bound_pods, self.claims, self.workloads
        )
        record = self.snapshot.record
        owners = tuple(workload.uid for workload in self.snapshot.workloads_of(self.attempt))
        held = self.snapshot.workloads_of(self.attempt)
        return PendingFacts(
            pods=tuple(pods or ()),
            jobs=tuple(jobs or ()),
            events=tuple(events or ()),
            nodes=None if nodes is None else tuple(nodes),
            others=tuple(others or ()),
            claims=tuple(claims or ()),
            workloads=tuple(workloads or ()),
            owners=(*owners, *(str(job["metadata"]["uid"]) for job in jobs or ())),
            missing=self.missing(),
            nodes_wanted=record.job.pods,
            is_gated=bool(held)
            and all(view.is_suspended for view in held)
            and not is_chained(record, self.snapshot.state),
            now=self.client.now(),
        )

    def _together(self, *asks: Callable[[], Any]) -> list[Any]:
        return [future.result() for future in [self.pool.submit(self._unless_refused, ask) for ask in asks]]

    def _unless_refused(self, ask: Callable[[], T]) -> T | None:
        try:
            return ask()
        except ApiError:
            return None

    def pods(self) -> list[Object]:
        wanted = str(self.attempt)
        bodies = self.client.list(kinds.POD, labels=names.pods_of(self.run)).items
        return [pod for pod in bodies if (pod["metadata"].get("labels") or {}).get(names.ATTEMPT) == wanted]

    def jobs(self) -> list[Object]:
        wanted = str(self.attempt)
        bodies = self.client.list(kinds.JOB, labels=names.selector([(names.RUN, self.run)])).items
        return [job for job in bodies if (job["metadata"].get("labels") or {}).get(names.ATTEMPT) == wanted]

    def events(self) -> list[Object]:
        """Events of all objects of the attempt and of its claims, oldest first."""
        start = names.attempt_name(self.run, self.attempt)

        def concerns(event: Object) -> bool:
            about = event.get("involvedObject") or {}
            name = str(about.get("name") or "")
            return name == start or name.startswith(f"{start}-") or about.get("kind") == "PersistentVolumeClaim"

        return sorted(filter(concerns, self.client.list(kinds.EVENT).items), key=event_time)

    def nodes(self) -> list[Object]:
        return list(self.client.list(kinds.NODE, into=SlimNode).items)

    def bound_pods(self) -> list[Object]:
        return list(self.client.list(kinds.POD, everywhere=True, fields=BOUND, into=BoundPod).items)

    def claims(self) -> list[Object]:
        return list(self.client.list(kinds.PVC).items)

    def workloads(self) -> list[Object]:
        if self.snapshot.record.gated_by != "kueue":
            return []
        return list(self.client.list(kinds.WORKLOAD).items)

    def missing(self) -> dict[str, tuple[str, ...]]:
        """Peers that running launchers wait for."""
        from longboat.engines.kubernetes.status import ask_launchers

        running = [pod for pod in self.snapshot.pods_of(self.attempt) if is_reachable(pod, self.snapshot)][:8]
        answers = ask_launchers(self.client, running)
        return {node: tuple(answer.get("missing") or ()) for node, answer in answers.items() if answer.get("missing")}

    def network(self, pods: Sequence[Object]) -> list[StartTrouble]:
        """Why nodes may not have found each other."""
        policies, namespace, dns, service = self._together(
            self.policies, self.namespace, self.dns_addresses, self.has_service
        )
        labels = (pods[0]["metadata"].get("labels") or {}) if pods else self._labels()
        start_troubles = [
            StartTrouble(
                what=f"NetworkPolicy {', '.join(policy.policies)} selects the run's pods and does not allow "
                f"{policy.what}",
                hint="allow pods with the label longboat.dev/run of this run to reach each other",
                cause="peers",
            )
            for policy in blocking_policies(policies or (), labels, namespace or {})
        ]
        if service is False:
            text = f"Service {names.attempt_name(self.run, self.attempt)} is gone, by which the nodes know their names"
            start_troubles.append(
                StartTrouble(what=text, hint="run it again; see who deletes Services here", cause="peers")
            )
        if dns == 0:
            text = "the cluster's DNS (service kube-dns in kube-system) has no ready pod: no name is found"
            start_troubles.append(
                StartTrouble(what=text, hint="kubectl -n kube-system get pods -l k8s-app=kube-dns", cause="peers")
            )
        return start_troubles

    def _labels(self) -> dict[str, str]:
        role = self.snapshot.record.job.roles[0].name
        return {names.RUN: self.run, names.ROLE: role, names.MANAGED_BY: "longboat"}

    def has_service(self) -> bool:
        return self.client.find(kinds.SERVICE, names.attempt_name(self.run, self.attempt)) is not None

    def policies(self) -> list[Object]:
        return list(self.client.list(kinds.NETWORK_POLICY).items)

    def namespace(self) -> Object:
        return self.client.get(kinds.NAMESPACE, self.client.namespace)

    def dns_addresses(self) -> int:
        return dns_addresses(self.client)


def pod_names(client: Client) -> dict[str, str]:
    """uid -> namespace/name of every pod that may be seen."""
    try:
        bodies = client.list(kinds.POD, everywhere=True).items
    except ApiError:
        bodies = client.list(kinds.POD).items
    metas = [pod["metadata"] for pod in bodies]
    return {str(meta.get("uid")): f"{meta.get('namespace')}/{meta.get('name')}" for meta in metas}


def dns_addresses(client: Client) -> int:
    """How many ready pods stand behind the cluster's DNS."""
    slices = client.list(SLICE, namespace="kube-system", labels="kubernetes.io/service-name=kube-dns").items
    return sum(
        (endpoint.get("conditions") or {}).get("ready") is not False
        for body in slices
        for endpoint in body.get("endpoints") or ()
    )


def setup_tail(client: Client, snapshot: RunSnapshot) -> tuple[str, ...]:
    """The last lines of a failed setup, from the first pod that has some."""
    for pod in snapshot.pods_of(snapshot.state.attempt):
        if pod.end is None and not is_reachable(pod, snapshot):
            continue
        try:
            with client.log(pod.name, tail=400, idle_s=LOG_S, patience_s=LOG_S) as stream:
                lines = [line for batch in batches(stream) for line in batch]
        except ApiError:
            continue
        parser = Parser()
        said = [line.data for line in map(parser.parse, lines) if line.key == "setup.out" and line.start < 0]
        if said:
            return tuple(data.decode(errors="replace").rstrip("\n") for data in said[-SETUP_LINES:])
    return ()

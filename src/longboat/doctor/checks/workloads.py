"""Checks of controllers, queues, and what runs left behind. Pure."""

from __future__ import annotations

from typing import Any

from longboat.core.times import parse_time, show_age
from longboat.core.words import listing
from longboat.doctor.facts import API, AUTOSCALER, CLUSTER, CONTROLLER, LEFTOVERS, OPERATORS, PODS, NotSeen, Seen
from longboat.doctor.findings import Check, Judgement, broken, ok, skipped, warning
from longboat.engines.kubernetes.submit.facts.cluster_facts import ClusterFacts

STUCK_S = 600.0
"""Ten minutes past its grace: the kubelet of a pod that is still there then does not answer."""
SILENT_S = 300.0
"""An autoscaler writes every half minute while it lives; ten turns missed are no delay any more."""
_SHOWN = 3  # names: a finding is one line


def jobset(seen: Seen) -> Judgement:
    if not _groups(seen).has_jobset:
        return ok("not here: runs are plain Jobs, which do the same")
    return _operator(seen, "jobset", "served: runs are JobSets (without a storage or a queue, several roles are Jobs)")


def kueue(seen: Seen) -> Judgement:
    facts = _groups(seen)
    if not facts.has_kueue:
        return ok("not here: Longboat's own gate lets gangs in")
    if facts.queues is None:
        return skipped("no right to list localqueues.kueue.x-k8s.io")
    idle = [f"{queue.name} ({queue.message or 'not active'})" for queue in facts.queues if queue.is_active is False]
    if idle:
        return warning(
            f"queues that admit nothing: {listing(idle, _SHOWN)}", "kubectl get clusterqueues; is its flavor there?"
        )
    names = ", ".join(queue.name for queue in facts.queues)
    return _operator(seen, "kueue", f"queues: {names or 'none in this namespace; create a LocalQueue to use it'}")


def _groups(seen: Seen) -> ClusterFacts:
    if not seen[CLUSTER].groups:  # every server has some
        raise NotSeen(skipped("the API server does not tell what it serves"))
    return seen[CLUSTER]


def _operator(seen: Seen, name: str, fine: str) -> Judgement:
    """An API that is served while nobody acts on its objects lets runs wait for ever."""
    rollouts = [each for each in seen[OPERATORS] if name in each.name]
    dead = [f"{each.namespace}/{each.name}" for each in rollouts if each.wanted and not each.ready]
    if dead:
        place, _, deployment = dead[0].partition("/")
        hint = f"kubectl -n {place} describe deployment {deployment}; its runs wait until it is ready"
        return broken(f"its API is served, but no pod of {dead[0]} is ready", hint)
    if not rollouts:
        return skipped(f"its API is served, but no Deployment of {name} can be seen: its controller is not known")
    return ok(fine)


def controller(seen: Seen) -> Judgement:
    lacking = seen[CONTROLLER]
    if lacking is None:
        return ok("looks after runs of this namespace that nobody watches")
    why, remedy = lacking
    detail = f"{why}: waiting runs are admitted, and failed ones restarted, only while a command watches them"
    return warning(detail, remedy)


def autoscaler(seen: Seen) -> Judgement:
    report, facts = seen[AUTOSCALER], seen[CLUSTER]
    if report is not None and report.age_s > SILENT_S:
        hint = "kubectl -n longboat-system get pods; kubectl -n longboat-system logs deployment/longboat-autoscaler"
        return broken(f"Longboat's autoscaler has written nothing for {show_age(report.age_s)}: it does not run", hint)
    if report is not None and report.warnings:
        hint = "`longboat autoscaler status` says more; `longboat autoscaler retry POOL` asks a pool again"
        return warning(listing(report.warnings, _SHOWN), hint)
    if facts.autoscaler is None:
        return ok("none seen: the cluster has the nodes it has")
    return ok(facts.autoscaler.name + (f": {facts.autoscaler.detail}" if facts.autoscaler.detail else ""))


def stuck_pods(seen: Seen) -> Judgement:
    now = seen[API].now + seen[API].skew_s
    stuck = [str(pod["metadata"]["name"]) for pod in seen[PODS] if _is_stuck(pod, now)]
    if stuck:
        hint = f"is its node lost? kubectl delete pod {stuck[0]} --force, once nothing of it runs any more"
        return warning(f"pods that were deleted and do not end: {listing(stuck, _SHOWN)}", hint)
    return ok("no pod of the namespace is stuck")


def _is_stuck(pod: dict[str, Any], now: float) -> bool:
    due = parse_time(pod["metadata"].get("deletionTimestamp"))
    return due is not None and now - due > STUCK_S


def leftovers(seen: Seen) -> Judgement:
    left = seen[LEFTOVERS]
    ours = [*(f"pod {name}" for name in left.helper_pods), *(f"claim {name}" for name in left.claims)]
    if ours:
        return warning(
            f"left by commands that were killed: {listing(ours, _SHOWN)}", "longboat doctor --fix removes them"
        )
    if left.orphans:
        hint = f"look at them, then kubectl delete {left.orphans[0].replace(' ', '/')}"
        return warning(f"objects of runs that have no record: {listing(left.orphans, _SHOWN)}", hint)
    return ok("nothing")


CHECKS = (
    Check("jobset", "workloads", "where JobSet is served, its controller runs", jobset),
    Check("kueue", "workloads", "where Kueue is served, its controller runs and queues are active", kueue),
    Check("controller", "workloads", "Longboat's controller looks after runs of the namespace", controller),
    Check("autoscaler", "workloads", "an autoscaler that is installed works", autoscaler),
    Check("stuck pods", "workloads", "pods that were deleted have ended", stuck_pods),
    Check(
        "leftovers",
        "workloads",
        "nothing is left of runs and commands that were killed",
        leftovers,
        fix="removes ended helper pods, and pods and claims of the doctor",
    ),
)

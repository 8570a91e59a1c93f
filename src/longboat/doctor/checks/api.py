"""Checks of the API server, the namespace and admission. Pure."""

from __future__ import annotations

from longboat.core.times import show_age
from longboat.core.words import listing
from longboat.doctor.facts import API, CLUSTER, READY, SIGNINGS, WEBHOOKS, Seen
from longboat.doctor.findings import Check, Judgement, broken, ok, skipped, warning
from longboat.engines.kubernetes.submit.preflight import OLDEST, version_of
from longboat.fitting.model.quantities import amount

SLOW_S = 1.0
"""A list takes several such round trips, a submission about twenty."""
SOON_S = 14 * 86400.0  # two weeks: time to ask somebody for new credentials before a long training needs them
FULL = 0.9
"""Share of a quota from which on the next run may not fit."""
_SHOWN = 3  # names: a finding is one line


def reachable(seen: Seen) -> Judgement:
    answer = seen[API]
    where = f"{answer.server} (context {answer.context})"
    if answer.took_s > SLOW_S:
        hint = "a slow way (VPN, proxy) or a busy server: kubectl get --raw /metrics | grep apiserver_current_inflight"
        return warning(f"{where} takes {answer.took_s:.1f} s for a small answer", hint)
    return ok(f"{where}, answers in {answer.took_s * 1000:.0f} ms")


def certificate(seen: Seen) -> Judgement:
    answer = seen[API]
    if answer.certificate is None:
        return skipped("the server's certificate cannot be seen: plain HTTP, or a proxy is before it")
    left_s = answer.certificate.ends - answer.now
    hint = "on the control plane: kubeadm certs renew all, then restart its pods; in a cloud, its provider does this"
    if left_s <= 0:
        return broken(f"the server's certificate ended {show_age(-left_s)} ago", hint)
    if left_s < SOON_S:
        return warning(f"the server's certificate ends in {show_age(left_s)}", hint)
    return ok(f"the server's certificate is valid for {show_age(left_s)}")


def health(seen: Seen) -> Judgement:
    failing = seen[READY]
    if failing:
        hint = "kubectl get --raw '/readyz?verbose'; of etcd: its disk, its members, its log"
        return broken(f"the API server says that it is not ready: {listing(failing, _SHOWN)}", hint)
    return ok("all of its own checks pass")


def version(seen: Seen) -> Judgement:
    facts = seen[CLUSTER]
    number = version_of(facts.version)
    if number is None:
        return skipped(f"the API server does not tell its version: {facts.version or 'nothing'}")
    oldest = ".".join(map(str, OLDEST))
    if number < OLDEST:
        return warning(f"{facts.version} is older than {oldest}", f"Longboat is tested with {oldest} and newer")
    return ok(facts.version)


def namespace(seen: Seen) -> Judgement:
    facts = seen[CLUSTER]
    if facts.has_namespace is False:
        hint = f"kubectl create namespace {facts.namespace}"
        return broken(f"there is no namespace {facts.namespace}", hint)
    if facts.is_terminating:
        return broken(f"{facts.namespace} is being deleted", "name another one with --namespace")
    if facts.has_namespace is None:
        return skipped(f"no right to get namespace {facts.namespace}")
    return ok(f"{facts.namespace}, Pod Security level {facts.security}")


def quota(seen: Seen) -> Judgement:
    facts = seen[CLUSTER]
    if facts.quotas is None:
        return skipped("no right to list resourcequotas")
    full = []
    for each in facts.quotas:
        for resource, limit in each.hard.items():
            if amount(resource, each.used.get(resource, "0")) >= amount(resource, limit) * FULL:
                full.append(f"{each.name}: {each.used.get(resource, '0')} of {limit} {resource}")
    if full:
        hint = "`longboat rm` ended runs, or ask for a larger quota; runs beyond it wait"
        return warning(f"nearly used up: {listing(full, _SHOWN)}", hint)
    count = len(facts.quotas)
    return ok("none" if not count else f"{count} with room left")


def webhooks(seen: Seen) -> Judgement:
    dead = [hook for hook in seen[WEBHOOKS] if hook.ready == 0 and hook.service]
    required = [f"{hook.name} ({hook.service})" for hook in dead if hook.is_required]
    if required:
        hint = "start what answers them, or remove them: kubectl get validatingwebhookconfigurations"
        return broken(f"admission webhooks that nobody answers refuse objects: {listing(required, _SHOWN)}", hint)
    if dead:
        names = [f"{hook.name} ({hook.service})" for hook in dead]
        hint = "every request that they match waits for their timeout first"
        return warning(f"admission webhooks that nobody answers: {listing(names, _SHOWN)}", hint)
    unknown = [f"{hook.name} ({hook.service})" for hook in seen[WEBHOOKS] if hook.ready is None and hook.service]
    if unknown:
        return skipped(f"no right to see who answers admission webhooks: {listing(unknown, _SHOWN)}")
    return ok(f"{len(seen[WEBHOOKS])} admission webhooks, all answered")


def signings(seen: Seen) -> Judgement:
    waiting = [str(body["metadata"]["name"]) for body in seen[SIGNINGS] if _is_pending(body)]
    if waiting:
        hint = f"kubectl certificate approve {waiting[0]}: without it `logs` and `exec` fail on that node"
        return warning(f"certificate requests wait for approval: {listing(waiting, _SHOWN)}", hint)
    return ok("no request waits for approval")


def _is_pending(body: dict[str, object]) -> bool:
    status = body.get("status")
    conditions = status.get("conditions") if isinstance(status, dict) else None
    return not conditions


CHECKS = (
    Check("api", "api", "the API server is reached, and answers fast", reachable),
    Check("api certificate", "api", "the API server's certificate has not ended", certificate),
    Check("api health", "api", "the API server's own checks pass, etcd's among them", health),
    Check("version", "api", "Kubernetes is new enough", version),
    Check("namespace", "api", "the namespace is there and stays", namespace),
    Check("quota", "api", "quotas of the namespace have room", quota),
    Check("webhooks", "api", "somebody answers every admission webhook", webhooks),
    Check("certificate requests", "api", "no node waits for its certificate", signings),
)

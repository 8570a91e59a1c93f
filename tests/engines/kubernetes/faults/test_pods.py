"""Pods that are taken away from a running gang, one by one or with their namespace."""

from __future__ import annotations

import pytest

from longboat.core.errors import LongboatError
from testbed import api
from tests.engines.kubernetes.faults.grounds import Ground
from tests.engines.kubernetes.flavours import FLAVOURS

pytestmark = [pytest.mark.pods, pytest.mark.parametrize("flavour", FLAVOURS)]

RETRIED = {"count": 1, "backoff": "0s"}


def pod_of(ground: Ground, index: int) -> str:
    """Of the first attempt."""
    items = ground.api.items(api.path_of("Pod", "v1", ground.namespace))
    wanted = {"longboat.dev/attempt": "0", "batch.kubernetes.io/job-completion-index": str(index)}
    return next(one["metadata"]["name"] for one in items if wanted.items() <= one["metadata"]["labels"].items())


def evict(ground: Ground, pod: str) -> None:
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": ground.namespace}}
    ground.api.call("POST", api.path_of("Pod", "v1", ground.namespace, pod) + "/eviction", body)


def test_an_eviction_is_refused_by_the_budget_and_a_preemption_without_it(ground: Ground) -> None:
    ground.submit(nodes=2, retries={**RETRIED, "on": ["preemption"]})
    ground.until_started(ranks=2)
    with pytest.raises(api.Refused, match="disruption budget"):
        evict(ground, pod_of(ground, 1))
    ground.api.delete(f"/apis/policy/v1/namespaces/{ground.namespace}/poddisruptionbudgets/job")
    evict(ground, pod_of(ground, 1))
    ground.let_go(1)
    ended = ground.wait()
    assert (ended.phase, ended.exit_code, len(ended.attempts)) == ("succeeded", 0, 2), ended.reason
    failure = ended.attempts[0].failure
    assert failure is not None and failure.cause == "preemption"
    ground.check_book(ranks=2, attempts=2)
    ground.remove()


@pytest.mark.parametrize("index", [pytest.param(0, marks=pytest.mark.soak), 1])
def test_a_pod_that_is_deleted_by_force_never_runs_beside_its_successor(ground: Ground, index: int) -> None:
    """It is gone from the cluster at once, while its ranks still have their grace."""
    ground.submit(nodes=2, retries=RETRIED)
    ground.until_started(ranks=2)
    ground.api.delete(api.path_of("Pod", "v1", ground.namespace, pod_of(ground, index)), grace_s=0)
    ground.let_go(1, 0, 0)
    ended = ground.wait()
    assert (ended.phase, ended.exit_code, len(ended.attempts)) == ("succeeded", 0, 2), ended.reason
    failure = ended.attempts[0].failure
    assert failure is not None and failure.cause in ("preemption", "lost")
    ground.check_book(ranks=2, attempts=2)
    ground.remove()


def test_the_only_pod_deleted_by_force_and_no_retry(ground: Ground) -> None:
    ground.submit()
    ground.until_started()
    ground.api.delete(api.path_of("Pod", "v1", ground.namespace, pod_of(ground, 0)), grace_s=0)
    ended = ground.wait()
    assert (ended.phase, ended.exit_code) == ("failed", 208), ended.reason
    assert ended.cause in ("preemption", "lost"), "whether its last words were heard"
    ground.until(lambda: not ground.living_ranks(), "the rank has left")
    ground.check_book()
    ground.remove()


def test_a_namespace_deleted_under_a_running_gang(ground: Ground) -> None:
    """Whoever waits is told; nothing is left in the cluster, and no rank lives."""
    ground.submit(nodes=2, retries=RETRIED)
    ground.until_started(ranks=2)
    ground.api.delete(api.path_of("Namespace", "v1", name=ground.namespace))
    try:
        assert ground.wait().phase == "failed"
    except LongboatError as error:
        assert error.message
    gone = api.path_of("Namespace", "v1", name=ground.namespace)
    ground.until(lambda: ground.api.get(gone) is None, "the namespace is gone")
    ground.check_book(ranks=2)
    assert ground.engine.list() == []

"""Fates of pods as data, for what no test cluster does. Real ones: test_explain."""

from __future__ import annotations

import pytest

from longboat.core.runs import RankReport
from longboat.engines.kubernetes.explain.pod_failures import eviction_words, pod_failures
from tests.engines.kubernetes.broken import pod

EVICTIONS = [
    ('Usage of EmptyDir volume "shm" exceeds the limit "64Mi". ', "volume shm beyond its limit of 64Mi", "`shm`"),
    (
        "Pod ephemeral local storage usage exceeds the total limit of containers 1Gi. ",
        "more than 1Gi to local disk",
        "`disk`",
    ),
    ("The node was low on resource: ephemeral-storage. ", "short of ephemeral-storage", "`disk`"),
    ("The node had condition: [DiskPressure]. ", "short of disk", "`disk`"),
    ("The node had condition: [MemoryPressure]. ", "short of memory", "`memory`"),
]


@pytest.mark.parametrize(("text", "words", "hint"), EVICTIONS)
def test_evictions_in_words(text: str, words: str, hint: str) -> None:
    found = eviction_words(text)
    assert found is not None and words in found[0] and hint in found[1]


def test_memory_of_the_rank_that_the_launcher_killed() -> None:
    """No OOMKilled: the container went on until its launcher ended it."""
    body = pod("run", resources={"limits": {"memory": "1Gi"}})
    report = RankReport(rank=3, node="worker-0", cause="oom", memory_peak=900 << 20)
    (told,) = pod_failures([body], [], report=report)
    assert "out of memory: its memory limit is 1Gi, rank 3 used 900Mi" in told.what
    assert pod_failures([body], [], report=RankReport(rank=3, node="worker-1", cause="oom")) == []


def test_a_drained_node_is_named() -> None:
    body = pod("run", nodeName="node-0")
    body["status"] = {"conditions": [{"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}]}
    ready = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    (told,) = pod_failures([body], [], nodes={"node-0": {"spec": {"unschedulable": True}, **ready}})
    assert told.what == "worker-0: evicted through the API: node node-0 is being drained"

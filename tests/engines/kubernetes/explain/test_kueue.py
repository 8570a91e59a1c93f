"""What Kueue's Workloads say about a run that waits: objects in, one line out."""

from __future__ import annotations

from typing import Any

from longboat.engines.kubernetes.explain.kueue import asked_of, run_of, waiting_words

GPU = "nvidia.com/gpu"


def workload(
    run: str, number: int, *, gpus: int = 1, pods: int = 1, said: str = "", admitted: bool = False, **spec: Any
) -> dict[str, Any]:
    template = {"spec": {"containers": [{"resources": {"requests": {GPU: str(gpus), "cpu": "500m"}}}]}}
    conditions = [{"type": "QuotaReserved", "status": "True" if admitted else "False", "message": said}]
    status: dict[str, Any] = {"conditions": conditions}
    if admitted:
        usage = {GPU: str(gpus * pods), "cpu": f"{500 * pods}m"}
        status["admission"] = {"clusterQueue": "all", "podSetAssignments": [{"name": "worker", "resourceUsage": usage}]}
    return {
        "metadata": {
            "uid": f"uid-{run}",
            "name": f"jobset-{run}",
            "creationTimestamp": f"2026-11-15T07:00:{number:02}Z",
            "ownerReferences": [{"kind": "JobSet", "name": f"{run}-a0"}],
        },
        "spec": {"queueName": "research", "podSets": [{"name": "worker", "count": pods, "template": template}], **spec},
        "status": status,
    }


SAID = f"couldn't assign flavors to pod set worker: insufficient unused quota for {GPU} in flavor all, 1 more needed"


def test_what_is_lacking_and_who_holds_it() -> None:
    mine = workload("mine", 2, gpus=1, said=SAID)
    holder = workload("holder", 1, gpus=2, admitted=True)
    words = waiting_words(mine, [mine, holder])
    assert words == "waits for 1 GPU (0 free) in queue research; held by holder"


def test_several_pods_are_counted_together() -> None:
    mine = workload("mine", 2, gpus=2, pods=3, said=SAID.replace("1 more", "4 more"))
    assert dict(asked_of(mine)) == {GPU: 6, "cpu": 1500}
    assert "6 GPUs (2 free)" in waiting_words(mine, [mine])


def test_who_is_before_it_by_priority_and_age() -> None:
    mine = workload("mine", 5)
    others = [
        workload("older", 1),
        workload("younger", 9),
        workload("urgent", 8, priority=10),
        workload("elsewhere", 1, queueName="other"),
    ]
    words = waiting_words(mine, [mine, *others])
    assert "2 runs before it (older, urgent)" in words
    assert "younger" not in words and "elsewhere" not in words


def test_what_kueue_says_is_passed_on_when_it_is_not_a_shortage() -> None:
    mine = workload("mine", 1, said="ClusterQueue all is inactive")
    assert waiting_words(mine, [mine]).endswith(": ClusterQueue all is inactive")


def test_runs_are_named_after_their_jobs_whatever_the_attempt() -> None:
    assert run_of(workload("train", 1)) == "train"
    named = {"metadata": {"name": "w", "ownerReferences": [{"name": "a-a1-run-a12-worker"}]}}
    assert run_of(named) == "a-a1-run"
    assert run_of({"metadata": {"name": "lonely"}}) == "lonely"

"""Which checkpoint a service that follows serves next."""

from __future__ import annotations

import pytest

from longboat.core.errors import UsageError
from longboat.core.jobs import Checkpoints, Job, Keep, Role, Serve
from longboat.serving.following import checked_follow, next_step, rule_of
from longboat.serving.requests import ServiceRequest
from longboat.storage.inventory.entries import CheckpointEntry
from longboat.storage.retention import Retention

RULE = Retention(metric="accuracy")


def entry(
    step: int, accuracy: float | None = None, *, complete: bool = True, promoted: bool = False
) -> CheckpointEntry:
    metrics = {} if accuracy is None else {"accuracy": accuracy}
    return CheckpointEntry(
        step=step,
        name=f"step-{step}",
        where="/c",
        size=1,
        files=1,
        complete=complete,
        promoted=promoted,
        metrics=metrics,
    )


ENTRIES = [entry(1, 0.5), entry(2, 0.9, promoted=True), entry(3, 0.7), entry(4), entry(5, 1.0, complete=False)]


@pytest.mark.parametrize(
    ("follow", "serving", "failed", "step"),
    [
        ("newest", 3, (), 4),
        ("newest", None, (), 4),
        ("newest", 4, (), None),
        ("newest", 3, (4,), None),
        ("newest", 9, (), None),
        ("best", 4, (), 2),
        ("best", 1, (), 2),
        ("best", 2, (), None),
        ("best", 1, (2,), None),
        ("promoted", 4, (), 2),
        ("promoted", 2, (), None),
    ],
)
def test_the_next_step(follow: str, serving: int | None, failed: tuple[int, ...], step: int | None) -> None:
    assert next_step(ENTRIES, follow, RULE, serving=serving, failed=failed) == step


def test_where_there_is_none() -> None:
    for follow in ("newest", "best", "promoted"):
        assert next_step([], follow, RULE, serving=1, failed=()) is None
    assert next_step([entry(3)], "best", RULE, serving=1, failed=()) is None, "none has the metric"
    lowest = Retention(metric="accuracy", goal="min")
    assert next_step(ENTRIES, "best", lowest, serving=2, failed=()) == 1


def test_what_is_followed_by_itself_was_named_by_nobody() -> None:
    job = Job(name="train", roles=(Role(name="worker", run="true"),))
    told: list[str] = []
    follows = Serve(follow="newest")
    assert checked_follow(ServiceRequest(run="train"), follows, job, told.append) == follows and told == []
    named = ServiceRequest(run="train", step=3)
    assert checked_follow(named, follows, job, told.append).follow is None and "step 3 was named" in told[0]
    by_itself = ServiceRequest(run="train", step=3, is_followed=True)
    assert checked_follow(by_itself, follows, job, told.append) == follows
    without = ServiceRequest(run="train", with_checkpoint=False)
    assert checked_follow(without, follows, job, told.append).follow is None
    fresh = ServiceRequest(run="train", fresh_code=True)
    assert checked_follow(fresh, follows, job, told.append).follow is None and "its folder now" in told[-1]
    with pytest.raises(UsageError, match="what its best checkpoint is"):
        checked_follow(ServiceRequest(run="train"), Serve(follow="best"), job, told.append)
    kept = Job(name="t", roles=job.roles, checkpoints=Checkpoints(keep=Keep(best=1, metric="loss", goal="min")))
    assert checked_follow(ServiceRequest(run="t"), Serve(follow="best"), kept, told.append).follow == "best"
    assert rule_of(kept) == Retention(metric="loss", goal="min")

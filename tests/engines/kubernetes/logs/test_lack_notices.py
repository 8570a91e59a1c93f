from __future__ import annotations

from longboat.engines.kubernetes.logs.lack_notices import GONE, KEPT, MACHINE, LackNotices


def test_a_few_nodes_are_named_and_the_others_counted() -> None:
    told: list[str] = []
    notices = LackNotices(told.append)
    for number in range(1000):
        notices.tell(MACHINE, f"worker-{number}")
    for number in range(4):
        notices.tell(KEPT, f"kept {number}")
    notices.tell(GONE, "gone")
    assert told == ["worker-0", "worker-1", "worker-2", "kept 0", "kept 1", "kept 2", "gone"]
    del told[:]
    notices.finish()
    assert told == [
        "nor can the logs of 997 more nodes be read from their machines",
        "nor can the logs of 1 more node be read from the storage",
    ]


def test_who_looks_again_is_told_again() -> None:
    told: list[str] = []
    notices = LackNotices(told.append)
    for _ in range(2):
        notices.tell(MACHINE, "worker-0")
        notices.finish()
    assert told == ["worker-0", "worker-0"]

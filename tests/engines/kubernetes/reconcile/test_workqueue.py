"""Whose turn is when: order, no two hands, nothing forgotten that was noted while it was worked on."""

from __future__ import annotations

import threading
import time

import pytest

from longboat.core.errors import EngineError
from longboat.engines.kubernetes.reconcile import workqueue
from longboat.engines.kubernetes.reconcile.workqueue import RunKey, TurnWorkers, WorkQueue

A, B, GATE = RunKey("default", "a"), RunKey("default", "b"), RunKey("default")


def test_the_earliest_comes_first_and_an_earlier_note_counts() -> None:
    queue = WorkQueue()
    now = time.monotonic()
    queue.note(A, now - 1)
    queue.note(B, now + 3600)
    queue.note(B, now - 2)
    queue.note(B, now + 7200)
    assert [queue.take(), queue.take()] == [B, A]


def test_a_later_note_does_not_put_it_off() -> None:
    queue = WorkQueue()
    queue.note(A, time.monotonic() - 1)
    queue.note(A, time.monotonic() + 3600)
    assert queue.take() == A


def test_noted_while_it_is_worked_on_it_comes_again_and_not_at_once_in_two_hands() -> None:
    queue = WorkQueue()
    queue.note(A, 0.0)
    assert queue.take() == A
    queue.note(A, 0.0)
    queue.note(A, time.monotonic() + 3600)
    queue.note(B, 1.0)
    assert queue.take() == B
    queue.done(A)
    assert queue.take() == A
    queue.done(A)
    queue.done(B)
    queue.note(GATE, 2.0)
    assert queue.take() == GATE, "what is done and was not noted again does not come again"


def test_what_is_forgotten_does_not_come() -> None:
    queue = WorkQueue()
    queue.note(A, 0.0)
    queue.note(B, 1.0)
    queue.forget(A)
    assert queue.take() == B
    queue.note(B, 0.0)
    queue.forget(B)
    queue.done(B)
    queue.note(GATE, 2.0)
    assert queue.take() == GATE


def test_closing_wakes_those_who_wait() -> None:
    queue = WorkQueue()
    taken: list[RunKey | None] = []
    threads = [threading.Thread(target=lambda: taken.append(queue.take())) for _ in range(3)]
    for thread in threads:
        thread.start()
    queue.note(A, time.monotonic() + 3600)
    queue.close()
    for thread in threads:
        thread.join(timeout=30)
    assert taken == [None, None, None]
    queue.note(B, 0.0)
    assert queue.take() is None


def test_many_hands_take_every_key_as_often_as_it_is_noted_afterwards() -> None:
    """Each hand notes its key again until it was worked on 50 times; nobody ever holds a key that another holds."""
    queue = WorkQueue()
    keys = [RunKey("default", str(number)) for number in range(5)]
    counts = dict.fromkeys(keys, 0)
    held: set[RunKey] = set()
    lock = threading.Lock()
    clashes: list[RunKey] = []

    def work() -> None:
        while (key := queue.take()) is not None:
            with lock:
                clashes.extend([key] if key in held else [])
                held.add(key)
            queue.note(key, time.monotonic())
            time.sleep(0)
            with lock:
                held.discard(key)
                counts[key] += 1
                if min(counts.values()) >= 50:
                    queue.close()
            queue.done(key)

    for key in keys:
        queue.note(key, time.monotonic())
    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert not clashes and min(counts.values()) >= 50


def test_a_turn_that_fails_is_told_once_for_each_reason_tried_again_and_ends_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(workqueue, "AGAIN_S", 0.001)
    told: list[str] = []
    turns: list[RunKey] = []
    ended = threading.Event()

    def turn(key: RunKey) -> float | None:
        turns.append(key)
        if key == A and turns.count(A) <= 3:
            raise EngineError("away") if turns.count(A) < 3 else ValueError("odd")
        if turns.count(A) > 3 and B in turns:
            ended.set()
        return None if key == A else 0.001

    workers = TurnWorkers(
        turn, title=lambda key: key.run, longest_s=1.0, say=told.append, may_work=lambda: not ended.is_set()
    )
    for key in (A, B):
        workers.queue.note(key, time.monotonic())
    workers.start("turns", 2)
    assert ended.wait(60)
    workers.queue.close()
    workers.join()
    assert told == ["a: away", "a: ValueError: odd"]
    assert workers.ended() == ["the thread turns-0 has ended", "the thread turns-1 has ended"]


def test_turns_that_hang_are_waited_for_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """A controller that is stopped has half a minute to give its Lease back, however many pods do not answer."""
    monkeypatch.setattr(workqueue, "LEAVING_S", 1.0)
    answer, asked = threading.Event(), threading.Semaphore(0)

    def turn(key: RunKey) -> float | None:
        asked.release()
        answer.wait(60)
        return None

    workers = TurnWorkers(turn, title=str, longest_s=1.0, say=pytest.fail, may_work=lambda: True)
    for number in range(8):
        workers.queue.note(RunKey("default", f"run-{number}"), time.monotonic())
    workers.start("turns", 8)
    for _ in range(8):
        assert asked.acquire(timeout=60)
    workers.queue.close()
    begun = time.monotonic()
    workers.join()
    assert time.monotonic() - begun < 4.0, "one second for all, not for each"
    answer.set()
    workers.join()

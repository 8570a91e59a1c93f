"""Nodes of attempts whose log no pod has any more, so that it is looked for in copies. Pure.

A node may have had several pods in attempts that were restarted in place: one that was killed or taken away, then its
successor. Each had the attempts from when it came until the next one did. What is read from which copy is decided
elsewhere (`sources`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from longboat.core.jobs import Value
from longboat.engines.kubernetes.observe.places import places_at, pod_playing
from longboat.engines.kubernetes.observe.snapshot import PodView
from longboat.engines.kubernetes.records import Record, State, expected_nodes


class AbsentNode(Value, frozen=True):
    attempt: int  # whose objects its pods were
    number: int  # that attempt, or one that was restarted in place in these pods
    node: str
    lost: PodView | None = None  # it is there, and its log cannot be read to its end


def absent_nodes(
    record: Record, state: State, pods: Sequence[PodView], unread: Collection[str] = ()
) -> list[AbsentNode]:
    """In the order of attempts and nodes. `unread`: uids of pods whose logs cannot be read, or not to their end."""
    absent: list[AbsentNode] = []
    for attempt in range(state.attempt + 1):
        if state.is_in_place(attempt):
            continue
        # Pods of an attempt that goes on may still come, and nothing is known of those that they have replaced.
        is_over = state.started is not None and (attempt < state.attempt or state.is_final)
        numbers = [attempt, *state.restarted_in(attempt)]
        lives = PodLives(record, state, numbers)
        known = lives.of([pod for pod in pods if pod.attempt == attempt])
        for number in numbers:
            playing = places_at(record.job, state.attempts, number)
            for node in expected_nodes(record.job):
                name = pod_playing(node, playing)
                there = known.get((name, lives.at(name, number)), [])
                if all(pod.uid in unread for pod in there) and (there or is_over):
                    absent.append(
                        AbsentNode(attempt=attempt, number=number, node=node, lost=there[-1] if there else None)
                    )
    return absent


class PodLives:
    """The pods of one name in attempts that shared them: the first, the one that was made when that was lost, ..."""

    def __init__(self, record: Record, state: State, numbers: Sequence[int]) -> None:
        self._numbers = numbers
        self._lost: dict[str, list[int]] = {}  # by name of a pod: attempts that began with another one
        nodes = set(expected_nodes(record.job))  # others write what is read here
        for attempt in sorted(state.attempts, key=lambda each: each.number):
            if attempt.number in numbers[1:]:
                before = places_at(record.job, state.attempts, attempt.number - 1)
                for node in nodes & set(attempt.replaced):
                    self._lost.setdefault(pod_playing(node, before), []).append(attempt.number)

    def at(self, name: str, number: int) -> int:
        """How many pods of this name had been lost when an attempt began."""
        return sum(lost <= number for lost in self._lost.get(name, ()))

    def of(self, pods: Iterable[PodView]) -> Mapping[tuple[str, int], list[PodView]]:
        """The pods that took part, by name and how many were lost before them."""
        known: dict[tuple[str, int], list[PodView]] = {}
        for pod in sorted(pods, key=lambda each: each.created):
            latest = self._latest(pod)
            if latest is not None:
                known.setdefault((pod.node, self.at(pod.node, latest)), []).append(pod)
        return known

    def _latest(self, pod: PodView) -> int | None:
        """The last attempt that it took part in; None: it came when there was nothing to take part in any more."""
        if pod.end is None:
            return self._numbers[-1]
        said = pod.end.said or pod.end.going
        if said is None:  # killed: before any restart in place, after which it would have left a word
            return self._numbers[0] if pod.is_killed else self._numbers[-1]
        if pod.successor and said.started is None and not said.restarts:
            return None
        return min(max(said.attempt, self._numbers[0]), self._numbers[-1])

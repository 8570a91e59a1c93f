"""Best-fit index: nodes in the order of best fit, kept sorted while pods come and go. Pure.

For pods that ask for a device: the node with the fewest free ones first, so that whole nodes stay whole. For others:
nodes without devices first, so that those with devices are kept for who needs them. Then the least CPU and memory free.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence

from longboat.fitting.model.quantities import CPU, MEMORY
from longboat.fitting.node_state import NodeState

Entry = tuple[int, int, int, int, str]


class BestFitIndex:
    def __init__(self, states: Sequence[NodeState], primary: str, seen: int) -> None:
        self._states = {state.name: state for state in states}
        self._primary = primary
        self._seen = seen
        self._sort()

    def _sort(self) -> None:
        self._at = {name: self._entry(state) for name, state in self._states.items()}
        self._entries = sorted(self._at.values())

    def _entry(self, state: NodeState) -> Entry:
        free = state.free
        if self._primary:
            first = free.get(self._primary, 0)
            second = state.devices_free() - first if len(state.scarce) > 1 else 0
        elif state.scarce:
            first, second = state.devices, state.devices_free()
        else:
            first = second = 0
        return (first, second, free.get(CPU, 0), free.get(MEMORY, 0), state.name)

    def refresh(self, changed: list[NodeState]) -> None:
        """Catch up with what has changed since the last time; `changed` is the fleet's log."""
        new = {state.name for state in changed[self._seen :]}
        self._seen = len(changed)
        if len(new) * 4 > len(self._at):
            self._sort()
            return
        for name in sorted(new):
            old = self._at.get(name)
            if old is not None:
                del self._entries[bisect_left(self._entries, old)]
                self._at[name] = entry = self._entry(self._states[name])
                insort(self._entries, entry)

    def walk(self, wanted: int, cpu: int) -> Iterator[NodeState]:
        """Nodes with at least so much of the primary resource and of cpu free, best fit first."""
        entries, states = self._entries, self._states
        place = bisect_left(entries, (wanted,)) if self._primary else 0
        while place < len(entries):
            entry = entries[place]
            if cpu and entry[2] < cpu:
                # The rest of this stretch is sorted by cpu: jump to where there is enough, or to the next stretch.
                place = bisect_left(entries, (entry[0], entry[1], cpu), place + 1)
                continue
            yield states[entry[4]]
            place += 1

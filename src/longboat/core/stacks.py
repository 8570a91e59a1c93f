"""Python stacks as `faulthandler` prints them: cutting them out of a log, and finding the odd one out. Pure.

Standard library only and Python >= 3.8: this file also travels into pods, inside the launcher.
"""

from __future__ import annotations

_HEADS = ("Fatal Python error: ", "Thread 0x", "Current thread 0x", "Stack (most recent call first)")
_WAITING = (
    "all_reduce", "allreduce", "all_gather", "allgather", "reduce_scatter", "all_to_all", "broadcast", "barrier",
    "recv", "wait", "synchronize", "rendezvous", "collective", "psum", "gather", "join", "poll", "select", "accept",
    "connect",
)  # fmt: skip
_MAX = 100_000  # of one process: a few hundred threads


def cut(text: str) -> str:
    """Only the stacks in a piece of a log, less what else was written in between."""
    kept: list[str] = []
    inside = False
    for line in text.splitlines():
        if line.startswith(_HEADS):
            inside = True
            kept.append(line)
        elif inside and line.startswith(('  File "', "  <", "  ...")):
            kept.append(line)
        elif line.strip():
            inside = False
    return "\n".join(kept)[:_MAX]


def main_frames(stack: str) -> list[tuple[str, str]]:
    """Function and `file:line` of the thread that took the signal, innermost first; else of the last thread."""
    threads: list[tuple[str, list[tuple[str, str]]]] = []
    for line in stack.splitlines():
        if line.startswith(_HEADS[1:]):
            threads.append((line, []))
        elif line.startswith("#") and threads:
            break  # the next process
        elif line.startswith('  File "') and threads:
            frame = _frame(line)
            if frame is not None:
                threads[-1][1].append(frame)
    current = [frames for head, frames in threads if head.startswith("Current")]
    if current:
        return current[0]
    return threads[-1][1] if threads else []


def _frame(line: str) -> tuple[str, str] | None:
    file, mark, rest = line.strip()[6:].rpartition('", line ')
    number, in_mark, function = rest.partition(" in ")
    if not mark or not in_mark:
        return None
    return function, f"{file.rpartition('/')[2]}:{number}"


def where(frames: list[tuple[str, str]]) -> str:
    """`load_batch (data.py:12)`"""
    return f"{frames[0][0]} ({frames[0][1]})" if frames else ""


def odd_one_out(stacks: dict[int, str]) -> tuple[tuple[int, ...], str]:
    """The ranks that are somewhere else than most, and where the first of them is. No ranks: they cannot be told apart.

    Ranks are compared by their innermost frame. When no place holds most of them, those that do not look as if they
    waited for others are the odd ones.
    """
    frames = {rank: main_frames(stack) for rank, stack in stacks.items()}
    places: dict[str, list[int]] = {}
    for rank in sorted(frames):
        if frames[rank]:
            places.setdefault(where(frames[rank]), []).append(rank)
    if len(places) < 2:
        return (), next(iter(places), "")
    known = sum(len(ranks) for ranks in places.values())
    most = max(places, key=lambda place: len(places[place]))
    if len(places[most]) * 2 > known:
        odd = [rank for place, ranks in places.items() if place != most for rank in ranks]
    else:
        odd = [rank for ranks in places.values() for rank in ranks if not _waits(frames[rank])]
        if len(odd) == known:
            odd = []
    return tuple(sorted(odd)), where(frames[min(odd)]) if odd else ""


def _waits(frames: list[tuple[str, str]]) -> bool:
    return any(word in function.lower() for function, _ in frames[:4] for word in _WAITING)


def describe(stacks: dict[int, str], silent: tuple[int, float] | None) -> str:
    """One line for the outcome: who is silent, who is the odd one out and where, where the others are."""
    parts = []
    if silent is not None:
        parts.append(f"rank {silent[0]} made no progress for {silent[1]:.0f} s")
    odd, place = odd_one_out(stacks)
    frames = {rank: main_frames(stack) for rank, stack in stacks.items()}
    others = [rank for rank in sorted(frames) if frames[rank] and rank not in odd]
    if odd:
        parts.append(f"odd one out: {_named(odd)} in {place}")
    if others:
        places = [where(frames[rank]) for rank in others]
        common = max(places, key=places.count)
        parts.append(f"{_named([rank for rank, at in zip(others, places) if at == common])} in {common}")
    return "; ".join(parts) or "the ranks were asked for their stacks"


def _named(ranks: list[int] | tuple[int, ...]) -> str:
    listed = ", ".join(map(str, ranks[:8])) + (", ..." if len(ranks) > 8 else "")
    return ("rank " if len(ranks) == 1 else "ranks ") + listed

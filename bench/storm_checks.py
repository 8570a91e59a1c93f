"""What must hold after an episode, whichever engine played it: complaints in words, none if all is well."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

from longboat.core.runs import LogLine, RunStatus
from storm_plan import Episode, allowed_codes, expected, takes_pods
from storm_trainer import Witness


class Aftermath:
    """One ended run: what the engine says of it, what its ranks noted."""

    def __init__(
        self, episode: Episode, witness: Witness, status: RunStatus, fallen: Sequence[str], *, keeps_dead: bool = True
    ) -> None:
        """`keeps_dead`: whether there is a log of a node whose launcher was killed, whatever befell its pod."""
        self.episode, self.witness, self.status, self.fallen = episode, witness, status, list(fallen)
        self.keeps_dead = keeps_dead

    def complaints(self, lines: Sequence[LogLine], checkpoints: Path) -> list[str]:
        by_model = self.wild() if self.episode.is_wild else self.exact()
        return [
            *by_model,
            *self.twice(),
            *self.wrong_lines(lines),
            *self.damaged(checkpoints),
            *self.witness.complaints(),
        ]

    def has_ended_well(self) -> bool:
        attempts = {attempt for attempt, _ in self.witness.starts()}
        ranks = range(self.episode.ranks)
        return any(all(self.witness.said(attempt, rank, "end") for rank in ranks) for attempt in attempts)

    def wild(self) -> list[str]:
        allowed = allowed_codes(self.episode, self.fallen, self.has_ended_well())
        complaints = []
        if self.status.exit_code not in allowed:
            complaints.append(f"exit code {self.status.exit_code}, allowed {sorted(allowed)}: {self.status.reason}")
        if (self.status.phase == "succeeded") != (self.status.exit_code == 0):
            complaints.append(f"phase {self.status.phase} with exit code {self.status.exit_code}")
        if self.status.exit_code == 0 and not self.has_ended_well():
            complaints.append("it succeeded, but not all ranks came to their end")
        return complaints

    def exact(self) -> list[str]:
        wanted, status = expected(self.episode), self.status
        complaints = []
        if (status.phase, status.exit_code) != (wanted.phase, wanted.exit_code):
            complaints.append(f"{status.phase} {status.exit_code} in place of {wanted.phase} {wanted.exit_code}")
        if len(status.attempts) != len(wanted.attempts):
            complaints.append(f"{len(status.attempts)} attempts in place of {len(wanted.attempts)}: {status.reason}")
        for attempt, model in zip(status.attempts, wanted.attempts, strict=False):
            is_last = attempt.number == len(wanted.attempts) - 1
            complaints += (
                []
                if is_last and wanted.phase == "stopped"
                else self.wrong_failure(attempt.number, model.exit_code, model.rank)
            )
            for rank in range(self.episode.ranks):
                printed = self.witness.printed(attempt.number, rank)
                first, last = model.resumed + 1, model.last
                if printed != list(range(first, last + 1)):
                    complaints.append(
                        f"rank {rank} of attempt {attempt.number} printed {printed}, not {first} to {last}"
                    )
        return complaints

    def wrong_failure(self, number: int, exit_code: int, rank: int | None) -> list[str]:
        failure = self.status.attempts[number].failure
        seen = (failure.exit_code if failure else 0, failure.rank.rank if failure and failure.rank else None)
        if seen == (exit_code, rank):
            return []
        message = failure.message if failure else "no failure"
        return [f"attempt {number} ended with {seen[0]} of rank {seen[1]}, not {exit_code} of rank {rank}: {message}"]

    def twice(self) -> list[str]:
        starts = self.witness.starts()
        complaints = [f"rank {rank} of attempt {attempt} started twice" for attempt, rank in set(starts)
                      if starts.count((attempt, rank)) > 1]  # fmt: skip
        numbers = {attempt for attempt, _ in starts}
        known = {attempt.number for attempt in self.status.attempts}
        if not numbers <= known:
            complaints.append(f"attempts {sorted(numbers - known)} ran and are not in the record")
        return complaints

    def wrong_lines(self, lines: Sequence[LogLine]) -> list[str]:
        """Every line that a rank knows to be written stands there once, in order. One more may have been on its way."""
        complaints: list[str] = []
        if takes_pods(self.episode):
            return complaints
        for attempt, rank in sorted(set(self.witness.starts())):
            data = [
                line.data.decode() for line in lines if (line.attempt, line.rank, line.stream) == (attempt, rank, "out")
            ]
            steps = [int(text.split()[1]) for text in data if text.startswith("line ") and text.endswith("\n")]
            printed = self.witness.printed(attempt, rank)
            if not steps and not self.keeps_dead and self.has_lost_launcher(attempt, rank):
                continue
            if steps[: len(printed)] != printed or len(steps) > len(printed) + 1 or steps != sorted(set(steps)):
                complaints.append(f"rank {rank} of attempt {attempt} printed {printed}, its log has {steps}")
        return complaints

    def has_lost_launcher(self, attempt: int, rank: int) -> bool:
        node = rank // self.episode.procs
        blows = [blow for blow in self.episode.blows if blow.kind in ("launcher", "any")]
        return any(blow.attempt == attempt and blow.at // self.episode.procs == node for blow in blows) or (
            self.episode.is_wild and bool(blows)
        )

    def damaged(self, checkpoints: Path) -> list[str]:
        complaints = []
        for folder in sorted(checkpoints.glob("step-*")):
            step = int(folder.name.removeprefix("step-"))
            try:
                state = json.loads((folder / "state.json").read_text())
                marker = json.loads((folder / ".complete").read_text())
                good = hashlib.sha256(state["data"].encode()).hexdigest() == state["sha256"]
                if not good or state["step"] != step or marker["step"] != step:
                    complaints.append(f"{folder.name} is not what was saved")
            except (OSError, ValueError, KeyError) as error:
                complaints.append(f"{folder.name} cannot be read: {error!r}")
        return complaints


def steps_that_fell(seen: Sequence[tuple[int, int | None]]) -> list[str]:
    """`seen`: attempt and step, as `status` told them one after the other."""
    highest: dict[int, int] = {}
    complaints = []
    for attempt, step in seen:
        if step is not None and step < highest.get(attempt, 0):
            complaints.append(f"the step of attempt {attempt} fell from {highest[attempt]} to {step}")
        highest[attempt] = max(highest.get(attempt, 0), step or 0)
    return complaints

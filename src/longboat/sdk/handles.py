"""Handles of runs for Python users. A handle keeps nothing but the name: every question is answered by the engine."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from longboat.core.errors import NotFound, UsageError
from longboat.core.runs import Explanation, LogLine, LogQuery, Phase, RunStatus
from longboat.engines.engine import Engine
from longboat.metrics.values import RunMetrics
from longboat.sdk.arguments import check_query, list_of, path_of, seconds_of, text_of, wrong
from longboat.sdk.copying import target_here, target_in_run
from longboat.sdk.engines import engine as engine_named
from longboat.sdk.names import find_run
from longboat.sdk.problems import plain_errors, plain_lines

if TYPE_CHECKING:
    from longboat.storage.inventory.entries import CheckpointEntry


class Run:
    """One run, by name."""

    def __init__(self, name: str, engine: Engine) -> None:
        self.name = name
        self._engine = engine

    def __repr__(self) -> str:
        return f"Run({self.name!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Run) and (self.name, self._engine.name) == (other.name, other._engine.name)

    def __hash__(self) -> int:
        return hash((self.name, self._engine.name))

    @plain_errors
    def status(self) -> RunStatus:
        """The run as it is now, in full."""
        return self._engine.status(self.name)

    @property
    def phase(self) -> Phase:
        return self.status().phase

    @property
    def exit_code(self) -> int | None:
        """The trainer's exit code; None until the run has ended."""
        return self.status().exit_code

    @plain_errors
    def wait(self, timeout_s: float | None = None) -> RunStatus:
        """Block until the run has ended. Raises WaitTimeout; the run goes on then."""
        return self._engine.wait(self.name, timeout_s=seconds_of("timeout_s", timeout_s))

    @plain_errors
    def logs(
        self,
        *,
        follow: bool = False,
        ranks: Sequence[int] = (),
        roles: Sequence[str] = (),
        since: float | None = None,
        tail: int | None = None,
    ) -> Iterator[LogLine]:
        """Lines of all ranks (or of these), of all attempts; with `follow` until the run has ended."""
        if tail is not None and (not isinstance(tail, int) or tail < 0):
            raise wrong("tail", tail, "a number of lines")
        query = LogQuery(
            follow=follow,
            ranks=list_of("ranks", ranks, int, "whole numbers"),
            roles=list_of("roles", roles, str, "names"),
            since=seconds_of("since", since),
            tail=tail,
        )
        check_query(self._engine.status(self.name), query)
        return plain_lines(self._engine.logs(self.name, query))

    @plain_errors
    def stop(self, grace_s: float | None = None) -> None:
        """Ask the run to stop and return; `wait` waits for it."""
        self._engine.stop(self.name, grace_s=seconds_of("grace_s", grace_s))

    @plain_errors
    def delete(self, *, purge: bool = False) -> None:
        """Stop it if it runs, then remove every trace; checkpoints stay unless `purge`."""
        self._engine.delete(self.name, purge=purge)

    @plain_errors
    def checkpoints(self) -> list[CheckpointEntry]:
        """Its checkpoints, oldest first, with those that were never finished."""
        with self._engine.checkpoints(self.name) as place:
            return place.entries()

    @plain_errors
    def fetch_checkpoint(self, destination: str | os.PathLike[str], step: int | str = "newest") -> Path:
        """Copy a checkpoint here, whole or not at all: a step, `newest` or `promoted`. Where it is."""
        from longboat.storage.inventory.actions import get as get_checkpoint

        with self._engine.checkpoints(self.name) as place:
            return get_checkpoint(place, self.name, str(step), Path(path_of("destination", destination)))

    @plain_errors
    def explain(self) -> Explanation:
        """The post-mortem of an ended run, or what a waiting or silent one waits for."""
        return self._engine.explain(self.name)

    @plain_errors
    def metrics(self) -> RunMetrics:
        """Series of what the trainer reported, and samples of its ranks."""
        return self._engine.metrics_of(self.name)

    @plain_errors
    def exec(self, command: Sequence[str], *, node: str | None = None, rank: int | None = None) -> int:
        """Run a command beside the ranks: their working copy and environment, this process' streams. Its exit code."""
        if isinstance(command, str) or not command:
            raise UsageError("exec takes the words of a command", hint='exec(["sh", "-c", "..."]) runs a shell line')
        words = list_of("command", command, str, "words")
        return self._engine.exec(self.name, words, node=node, rank=rank)

    @plain_errors
    def cp(
        self, source: str | os.PathLike[str], destination: str | os.PathLike[str], *, node: str | None = None
    ) -> None:
        """Copy a file or folder out of the run or into it. The side in the run begins with a colon.

        `run.cp(":artifacts/plot.png", ".")`, `run.cp("config.yaml", ":conf/config.yaml")`.
        """
        come, go = path_of("source", source), path_of("destination", destination)
        if come.startswith(":") == go.startswith(":"):
            raise UsageError("exactly one side begins with a colon: that in the run", hint='cp(":artifacts/x", ".")')
        if come.startswith(":"):
            self._engine.copy_from(self.name, come[1:] or ".", target_here(come[1:], go), node=node)
        elif not os.path.exists(come):
            raise NotFound(f"no such file: {come}")
        else:
            self._engine.copy_to(self.name, Path(come), target_in_run(Path(come), go[1:] or "."), node=node)


def engine_of(engine: Engine | str | None) -> Engine:
    """An engine itself, the one with this name, or the one that is set as default."""
    return engine_named(engine) if engine is None or isinstance(engine, str) else engine


@plain_errors
def runs(*, engine: Engine | str | None = None) -> list[Run]:
    """All runs, newest first."""
    place = engine_of(engine)
    return [Run(status.name, place) for status in place.list()]


@plain_errors
def get(name: str, *, engine: Engine | str | None = None) -> Run:
    """The run with this name, with a name that begins like this, or the latest for `-`. Raises NotFound."""
    place = engine_of(engine)
    return Run(find_run(place, text_of("name", name)).name, place)

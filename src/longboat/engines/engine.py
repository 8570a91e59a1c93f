"""The interface of an engine, and its promises. One conformance suite (tests/conformance) holds every engine to them.

1. The same Job gives every rank the same environment on every engine.
2. `submit` is idempotent by run id: the same id again returns the run that exists.
3. Logs are complete, ordered per rank, and kept after the end.
4. The exit code of a run is that of the first rank that failed, 128 + n for signal n.
5. `stop` gives the ranks their grace, then ends all of them.
6. A retry restarts the whole gang and resumes from the newest complete checkpoint.
7. Nothing is left behind after `delete`, checkpoints excepted.
8. An impossible request is refused at once, with the reason and the nearest thing that would fit.
9. A waiting run says what it waits for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from longboat.core.jobs import Job, Value
from longboat.core.plans import Plan
from longboat.core.runs import Explanation, LogLine, LogQuery, PrunedItem, PruneQuery, RunStatus
from longboat.metrics.values import Activity, RunMetrics

if TYPE_CHECKING:
    from longboat.storage.inventory.entries import CheckpointPlace


class Submission(Value, frozen=True):
    """Everything `submit` needs. Secrets and PATH come from the environment, which goes into no file."""

    job: Job
    base: str  # absolute folder that relative paths of the job are relative to
    run_id: str | None = None  # None: the engine takes the first free of NAME, NAME-2, NAME-3, ...
    environment: Mapping[str, str] = {}
    in_place: bool = False  # run in the folder of the code itself, without a copy; only on the machine that it is on
    stdin: int | None = None  # what the only rank reads, a descriptor; engines that cannot give it leave it without
    code: str | None = None  # hash of a snapshot that this home has: taken instead of what the folder holds now
    outside: Mapping[str, str] | None = None  # with `code`: its links out of the tree, which the hash does not cover
    root: str = ""  # with `outside`: the folder that the code was taken of


class Engine(Protocol):
    name: str
    takes_over: bool  # False: looking at a run starts nothing, also where whoever looked after it is gone

    def plan(self, submission: Submission) -> Plan:
        """What `submit` would do. Raises Refused where `submit` would (promise 8)."""

    def submit(self, submission: Submission) -> RunStatus:
        """Hand the run over; returns at once, the run goes on without the caller (promise 2)."""

    def resubmission(self, run: str) -> Submission:
        """What was submitted as this run, with the code as it was then; secrets are named, never stored."""

    def list(self) -> Sequence[RunStatus]:
        """All runs, newest first, without `ranks` and `spec`."""

    def with_steps(self, runs: Sequence[RunStatus]) -> Sequence[RunStatus]:
        """Listed runs with their steps and metrics, which may cost more than all the rest of them."""

    def status(self, run: str) -> RunStatus:
        """One run in full, by its exact name. Raises NotFound."""

    def metrics_of(self, run: str) -> RunMetrics:
        """Series of what its trainer reported and samples of its ranks, also after the end. Raises NotFound."""

    def activity(self) -> Activity:
        """The runs that have not ended, with what their ranks use, and the GPUs with who has them."""

    def logs(self, run: str, query: LogQuery, *, is_wanted: Callable[[], bool] = lambda: True) -> Iterator[LogLine]:
        """Lines of all ranks merged by time, each rank's own order kept; with `follow`, until the run has ended.

        `is_wanted` is asked now and then while a run is followed: False ends it, though no line comes.
        """

    def wait(self, run: str, *, timeout_s: float | None = None) -> RunStatus:
        """Block until the run has ended. Raises WaitTimeout."""

    def set_priority(self, run: str, priority: int) -> None:
        """Change the place of a run that waits: a higher one goes first. Raises UsageError where none waits."""

    def stop(self, run: str, *, grace_s: float | None = None) -> None:
        """Ask the run to stop and return; `wait` waits for it (promise 5). Nothing happens to an ended run."""

    def delete(self, run: str, *, purge: bool = False) -> None:
        """Stop it if it runs, then remove every trace; checkpoints stay unless `purge` (promise 7).

        With `purge`, the checkpoints of a run that was removed before go too, as far as `kept_checkpoints` knows them.
        """

    def kept_checkpoints(self, run: str) -> str | None:
        """Where the checkpoints of a removed run still are; None: there are none that this engine knows of."""

    def prune(self, query: PruneQuery) -> Iterator[PrunedItem]:
        """Remove ended runs as `delete` does, and what only they needed; each is told once it is gone, or with
        the problem that keeps it: the others go on."""

    def exec(self, run: str, command: Sequence[str], *, node: str | None = None, rank: int | None = None) -> int:
        """Run a command beside the ranks: their working copy, their environment, the caller's terminal."""

    def copy_from(self, run: str, source: str, destination: Path, *, node: str | None = None) -> None:
        """Copy a file or folder out of a node's working copy (`artifacts/...`, `checkpoints/...` name those)."""

    def copy_to(self, run: str, source: Path, destination: str, *, node: str | None = None) -> None:
        """Copy a file or folder into a node's working copy."""

    def kill_node(self, run: str, node: str, *, launcher_only: bool) -> None:
        """End a node of a run by force, as a fault would: all its processes, or its launcher alone. For drills."""

    def note_drill(self, run: str, text: str) -> None:
        """Write on the run what a drill has shown: `status` shows it."""

    def checkpoints(self, run: str) -> AbstractContextManager[CheckpointPlace]:
        """The run's checkpoints one by one, wherever they are; also those that a removed run left. Raises NotFound."""

    def explain(self, run: str) -> Explanation:
        """The post-mortem of an ended run, or what a waiting or silent one waits for."""

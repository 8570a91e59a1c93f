"""The files of a run as everybody reads them: where one is damaged, rebuilt from the others (`rebuilding`)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from longboat.core.elastic.sizes import is_elastic
from longboat.core.errors import NotFound
from longboat.engines.local.records import LocalRecord, LocalState, RunFolder, at_present
from longboat.engines.shared.files import is_own_folder

if TYPE_CHECKING:
    from longboat.core.layouts import NodeLayout

LAUNCHER = os.fspath(Path(__file__).parents[2] / "launcher" / "__main__.py")
"""The program that is given a node's plan, as a file: nothing of it is imported for that."""


class RunFiles(RunFolder):
    def record(self) -> LocalRecord:
        """The record, of an elastic run at its present size; where the file is damaged, rebuilt from the attempts'
        files. Raises NewerFormat."""
        record = self.stored_record()
        if record is not None:
            return at_present(record, self.stored_state() or LocalState()) if is_elastic(record.job) else record
        self._check_there()
        self.check_format()
        from longboat.engines.local.rebuilding import rebuilt_record

        return rebuilt_record(self)

    def state(self, *, is_alone: bool = False) -> LocalState:
        """The state; where the file is damaged, rebuilt from the attempts' files.

        `is_alone`: the caller holds the run's lock, so no supervisor lives.
        """
        state = self.stored_state()
        if state is not None:
            return state
        if not self.directory.is_dir():
            return self.stored_progress() or LocalState()
        self.check_format()
        from longboat.engines.local.rebuilding import rebuilt_state

        return rebuilt_state(self, self.record(), self.stored_progress(), is_alone=is_alone)

    def is_own(self) -> bool:
        """Whether the caller made this run."""
        return is_own_folder(self.directory)

    def _check_there(self) -> None:
        if not self.directory.is_dir():
            raise NotFound(f"{self.directory.name} was removed", hint="`longboat ps -a` lists all runs")


class AttemptNode:
    """One node of an attempt on this machine."""

    def __init__(self, layout: NodeLayout, directory: Path) -> None:
        self.layout = layout
        self.name = layout.name
        self.directory = directory
        self.work = directory / "work"
        self.plan = directory / "plan.json"

    def pipes(self) -> list[Path]:
        return [
            self.directory / "pipes" / f"{rank.rank}.{stream}"
            for rank in self.layout.ranks
            for stream in ("out", "err")
        ]

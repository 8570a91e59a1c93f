"""The runs that another one starts after, as their files tell. One whose supervisor has vanished gets another one."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Sequence

from longboat.core.errors import EngineError, NotFound
from longboat.core.guards.formats import NewerFormat
from longboat.engines.lifecycle.predecessors import ChainVerdict, Predecessor, PredecessorView, judge_chain
from longboat.engines.local.records import LocalRecord
from longboat.engines.local.runfiles import RunFiles
from longboat.engines.local.supervise.spawn import take_over
from longboat.engines.shared.files import log_line
from longboat.engines.shared.home import Home


def look_at_chain(home: Home, after: Sequence[Predecessor], succeeded: Collection[str] = ()) -> ChainVerdict:
    seen = {}
    for wanted in after:
        with contextlib.suppress(NotFound):
            files = RunFiles(home.run_dir(wanted.run))
            try:
                record, state = files.record(), files.state()
            except NewerFormat:  # who took it over knows how it stands; this waits until it is understood
                seen[wanted.run] = PredecessorView(uid=wanted.uid, phase="running", exit_code=None)
                continue
            if record.uid == wanted.uid and not state.is_final:
                _recover(files, record)
                state = files.state()
            seen[wanted.run] = PredecessorView(uid=record.uid, phase=state.phase, exit_code=state.exit_code)
    return judge_chain(after, seen, succeeded)


def _recover(files: RunFiles, record: LocalRecord) -> None:
    """Replace the vanished supervisor of a predecessor: no command may look at it before this run needs it."""
    if not files.is_own():
        return
    try:
        take_over(files, record, os.environ, log_line, may_fork=False)
    except NotFound:
        raise
    except EngineError as error:  # a disk that is full now: the next look tries again
        log_line(error.message)

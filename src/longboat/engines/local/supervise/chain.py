"""The runs that another one starts after, as their files tell."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Sequence

from longboat.core.errors import NotFound
from longboat.engines.lifecycle.predecessors import ChainVerdict, Predecessor, PredecessorView, judge_chain
from longboat.engines.local.runfiles import RunFiles
from longboat.engines.shared.home import Home


def look_at_chain(home: Home, after: Sequence[Predecessor], succeeded: Collection[str] = ()) -> ChainVerdict:
    seen = {}
    for wanted in after:
        with contextlib.suppress(NotFound):
            files = RunFiles(home.run_dir(wanted.run))
            state = files.state()
            seen[wanted.run] = PredecessorView(uid=files.record().uid, phase=state.phase, exit_code=state.exit_code)
    return judge_chain(after, seen, succeeded)

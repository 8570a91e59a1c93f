"""The submission that a version of a service is made of: the run's, with its code or the code of now."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from longboat.engines.engine import Engine, Submission
from longboat.engines.lifecycle.resubmission import with_fresh_code
from longboat.engines.shared.code_snapshot import snapshot_of
from longboat.engines.shared.home import Home
from longboat.serving.requests import ServiceRequest


def submission_of(engine: Engine, request: ServiceRequest) -> Submission:
    """As the run was submitted; the code of now is taken when it is submitted."""
    submission = engine.resubmission(request.run)
    return with_fresh_code(submission) if request.fresh_code else submission


def with_code_of_now(home: Home, submission: Submission, notice: Callable[[str], None]) -> Submission:
    """With a snapshot where it has none: each replica of a version has the same code, however late it starts."""
    snapshot = snapshot_of(home, submission) if submission.code is None else None
    if snapshot is None:
        return submission
    for warning in snapshot.warnings:
        notice(warning)
    return msgspec.structs.replace(submission, code=snapshot.hash, outside=snapshot.outside, root=snapshot.root)

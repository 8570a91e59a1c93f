"""What a service of a cluster cannot have is refused before anything is made, or asked of the cluster."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from longboat.core.errors import NotFound, UsageError
from longboat.core.jobs import DEFAULT_ROLE, Job, Role
from longboat.engines.engine import Submission
from longboat.serving.kubernetes.services import ClusterServices
from longboat.serving.requests import ServiceRequest

ROLE = Role(name=DEFAULT_ROLE, run="true")
JOB = Job(name="train", roles=(ROLE,), ends=(DEFAULT_ROLE,))
SUBMISSION = Submission(job=JOB, base="/")


class Untouched:
    """An engine that may be read, and whose manifests nobody makes."""

    client = SimpleNamespace(find=lambda *_: None)

    def resubmission(self, run: str) -> Submission:
        return SUBMISSION


@pytest.mark.parametrize(
    ("request_", "error", "word"),
    [
        (ServiceRequest(run="train", command="app", host="0.0.0.0"), UsageError, "--host"),
        (ServiceRequest(run="train", command="app", weight=10), NotFound, "canary"),
        (ServiceRequest(run="train"), UsageError, "no command"),
    ],
)
def test_refused(request_: ServiceRequest, error: type[Exception], word: str) -> None:
    engine: Any = Untouched()
    with pytest.raises(error, match=word):
        ClusterServices(engine).serve(request_)

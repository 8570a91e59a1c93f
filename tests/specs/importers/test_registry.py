"""Which tool a file is of, and files that are none of a task."""

from __future__ import annotations

import pytest

from longboat.core.errors import JobError
from longboat.specs.importers.registry import import_text


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("type: service\nport: 1", "of type service; only tasks"),
        ("type: dev-environment", "only tasks"),
        ("a: 1", "found no SkyPilot task"),
        ("run: x\nnodes: 2", "already"),
        ("- a", "which is a mapping"),
        ("", "which is a mapping"),
        ("run: [", "not valid YAML"),
        ("run: a\nrun: b", "written twice"),
        ("name: pipeline\n---\nrun: a\n---\nname: last\nrun: b", "the file has 2 tasks: 1, last"),
        ("name: pipeline\n---\nname: only", "the file has 0 tasks"),
    ],
)
def test_refused(text: str, says: str) -> None:
    with pytest.raises(JobError, match=says):
        import_text(text, file="their.yaml")

"""What Python users give by mistake: one of our errors that names it, and none of our frames."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from pathlib import Path

import pytest

from longboat import sdk
from longboat.core.errors import NotFound, UsageError
from longboat.core.runs import LogQuery, RunStatus
from longboat.sdk.arguments import check_query

JOB = sdk.job(name="a", run="true", nodes=2)
RUN = RunStatus(
    name="a", uid="u", job="a", phase="failed", engine="local", created=0.0, nodes=2, gpus=0, retries=3, spec=JOB
)


def handle() -> sdk.Run:
    return sdk.Run("gone", sdk.engine("local"))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: sdk.job(3), "a job: found int 3, expected a Job, a mapping"),
        (lambda: sdk.run(run="true", run_id=3), "run_id: found int 3, expected text"),
        (lambda: sdk.run(run="true", base=3), "base: found int 3"),
        (lambda: sdk.get(None), "name: found None"),
        (lambda: sdk.engine("slurm"), "no engine named 'slurm'"),
        (lambda: sdk.get("a", engine="slurm"), "no engine named 'slurm'"),
        (lambda: handle().logs(ranks=9), "ranks: found int 9, expected a list of whole numbers"),
        (lambda: handle().logs(roles="worker"), "roles: found str 'worker', expected a list of names"),
        (lambda: handle().logs(tail=-1), "tail: found int -1"),
        (lambda: handle().wait(timeout_s="1m"), "timeout_s: found str '1m', expected seconds"),
        (lambda: handle().stop(-1), "grace_s: found int -1"),
        (lambda: handle().exec(["sh", 3]), "command: found int 3, expected a list of words"),  # type: ignore[list-item]
        (lambda: handle().cp(3, "."), "source: found int 3, expected a path"),
    ],
)
def test_a_wrong_kind_of_value_is_named(call: Callable[[], object], words: str, home: Path) -> None:
    with pytest.raises(UsageError) as caught:
        call()
    assert words in str(caught.value)
    frames = [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert frames[-1] == "call", "of ours there is only the frame that raises it again"


@pytest.mark.parametrize(
    "query", [LogQuery(ranks=(2,)), LogQuery(ranks=(-1,)), LogQuery(roles=("ps",)), LogQuery(attempt=1)]
)
def test_what_a_run_does_not_have_is_no_empty_log(query: LogQuery) -> None:
    with pytest.raises(NotFound, match="a has no"):
        check_query(RUN, query)
    check_query(RUN, LogQuery(ranks=(0, 1), roles=("worker",), attempt=0))

"""What is to be killed, as a user writes it."""

from __future__ import annotations

import pytest

from longboat.core.errors import LongboatError, NotFound, UsageError
from longboat.core.jobs import Job, Role
from longboat.sdk.drill.kills import Kill, parse_kill, parse_kills

JOB = Job(
    name="digits",
    roles=(Role(name="ps", run="x"), Role(name="worker", run="x", nodes=2, procs=2)),
    ends=("worker",),
)


@pytest.mark.parametrize(
    ("word", "kill"),
    [
        ("rank=1@step=200", Kill(kind="rank", rank=1, node="worker-0", step=200)),
        ("rank=4", Kill(kind="rank", rank=4, node="worker-1")),
        ("rank", Kill(kind="rank", rank=0, node="ps-0")),
        ("node", Kill(kind="node", rank=1, node="worker-0")),
        ("node=worker-1@step=7", Kill(kind="node", rank=3, node="worker-1", step=7)),
        ("launcher@step=7", Kill(kind="launcher", rank=1, node="worker-0", step=7)),
    ],
)
def test_a_kill_is_read(word: str, kill: Kill) -> None:
    assert parse_kill(word, JOB) == kill


@pytest.mark.parametrize(
    ("word", "error", "says"),
    [
        ("rank=5", NotFound, "digits has no rank 5"),
        ("rank=x", UsageError, "a rank is a number"),
        ("node=worker-2", NotFound, "digits has no node worker-2"),
        ("node=$(reboot)", UsageError, "not understood"),
        ("rank=1@200", UsageError, "not understood"),
        ("", UsageError, "not understood"),
    ],
)
def test_what_cannot_be_killed_is_said(word: str, error: type[LongboatError], says: str) -> None:
    with pytest.raises(error, match=says) as caught:
        parse_kill(word, JOB)
    assert caught.value.hint


def test_without_a_kill_rank_0_is_killed() -> None:
    assert parse_kills((), JOB) == [Kill(kind="rank", rank=0, node="ps-0")]
    with pytest.raises(UsageError, match="21 kills"):
        parse_kills(["rank=0"] * 21, JOB)

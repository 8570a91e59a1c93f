"""Which run a command of the workbench takes: one that is open, a new one, the latest training."""

from __future__ import annotations

from typing import Any

import click

from longboat.cli.commands.workbench.board import selected
from longboat.cli.commands.workbench.opening import open_bench
from longboat.core.jobs import Job, Role
from longboat.core.runs import REPLICA_OF, RunStatus
from longboat.engines.engine import Submission
from longboat.workbench.jobs import KIND_LABEL
from tests.workbench.test_sessions import OWN, Listed, changed

ROLE = Role(name="worker", run="sh")
SHELL = Submission(job=Job(name="shell", roles=(ROLE,), ends=("worker",)), base="/", environment={})


class Place(Listed):
    """An engine that takes submissions too."""

    name = "kubernetes"

    def submit(self, submission: Submission) -> RunStatus:
        return changed("new", phase="pending", job=submission.job.name)


def test_one_that_waits_is_that_of_another_terminal() -> None:
    pending = changed("shell", job="shell", phase="pending", labels={KIND_LABEL: "shell"})
    place: Any = Place([pending])
    assert open_bench(place, SHELL, "shell") == (pending, False)


def test_a_new_one_is_ones_own() -> None:
    place: Any = Place([OWN])
    run, is_new = open_bench(place, SHELL, "shell")
    assert (run.name, is_new) == ("new", True)


def test_the_latest_of_a_board_is_no_replica_of_a_service() -> None:
    replica = changed("web-r1", labels={REPLICA_OF: "web"})
    place: Any = Place([replica, changed("train", labels={})])
    with click.Context(click.Command("board")):
        assert [name.split("=")[0] for name in selected(place, (), (), everything=False).names] == ["train"]
        assert [name.split("=")[0] for name in selected(place, ("web-r1",), (), everything=False).names] == ["web-r1"]

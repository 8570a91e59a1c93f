"""A run of this machine tells of its end by itself."""

from __future__ import annotations

import json

from tests.cli.conftest import Longboat
from tests.launcher.nodes import until


def test_the_command_is_run_when_a_detached_run_has_ended(longboat: Longboat) -> None:
    told = longboat.folder / "told.json"
    longboat("config", "set", "notify.command", f"cat > {told}.tmp && mv {told}.tmp {told}")
    longboat("run", "-d", "--name", "n1", "--", "sh", "-c", "exit 7", code=None)
    until(told.exists)
    notice = json.loads(told.read_text())
    assert (notice["run"], notice["phase"], notice["exit_code"]) == ("n1", "failed", 7)
    longboat("rm", "n1")

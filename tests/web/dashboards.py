"""Dashboards over embedded engines, asked in this process."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import longboat
from longboat.core.runs import RunStatus
from longboat.engines.engine import Submission
from longboat.engines.local.engine import LocalEngine
from longboat.engines.local.settings import LocalSettings
from longboat.web.access import AccessRules
from longboat.web.app import Dashboard, make_app
from longboat.web.events import EventLog
from longboat.web.places import LOCAL, TITLE, ShownPlace
from longboat.web.server import allowed_hosts
from longboat.web.watching import Watchers
from tests.web.asgi import Answer, ask

RULES = AccessRules(token="secret-token", hosts=allowed_hosts("127.0.0.1", 8080))
BEARER = {"authorization": f"Bearer {RULES.token}"}


class AskedDashboard:
    """A dashboard whose watchers look when a test says so."""

    def __init__(self, home: Path, *, readonly: bool = False, gpu_hour: float = 0.0) -> None:
        environment = {**os.environ, "LONGBOAT_HOME": str(home)}
        self.engine = LocalEngine(home, environment=environment, settings=LocalSettings(gpu_hour=gpu_hour))
        self.place = ShownPlace(LOCAL, TITLE, LOCAL, self.engine)
        self.watchers = Watchers([self.place], EventLog())
        self.app = make_app(Dashboard(self.watchers, RULES, readonly=readonly))

    def look(self) -> None:
        self.watchers.note(LOCAL, self.engine.list(), 1_700_000_000.0)

    def get(self, target: str, **headers: str) -> Answer:
        return asyncio.run(ask(self.app, "GET", target, {**BEARER, **headers}))

    def post(self, target: str, data: Any = None, **headers: str) -> Answer:
        body = b"" if data is None else json.dumps(data).encode()
        return asyncio.run(ask(self.app, "POST", target, {**BEARER, **headers}, body))

    def run(self, folder: Path, text: str, name: str, **fields: Any) -> RunStatus:
        """Run a Python program to its end."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "train.py").write_text(text)
        job = longboat.job(name=name, run="python train.py", **fields)
        submission = Submission(job=job, base=str(folder), run_id=name, environment=self.engine.environment)
        self.engine.submit(submission)
        return self.engine.wait(name, timeout_s=60)

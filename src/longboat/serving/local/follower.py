"""The follower of a service: gives it a new version when its run has another checkpoint to serve.

A part of the supervisor's process. It waits until the version before is rolled out or has failed: checkpoints that come
faster than replicas start are passed over.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait

from longboat.core.errors import LongboatError
from longboat.engines.local.engine import LocalEngine
from longboat.serving.following import FOLLOW_S, find_next
from longboat.serving.local.records import ServiceFolder, ServiceState, WantedService
from longboat.serving.local.rollout import serving_version
from longboat.serving.local.services import LocalServices
from longboat.serving.local.status import status_of
from longboat.serving.requests import ServiceRequest


class ServiceFollower:
    def __init__(self, folder: ServiceFolder, environment: Mapping[str, str], say: Callable[[str], None]) -> None:
        self._engine = LocalEngine(folder.home.root, environment=dict(environment))
        self._services = LocalServices(self._engine)
        self._say = say
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="follower")
        self._look: Future[None] | None = None
        self._due = 0.0
        self.problem = ""  # of the last look

    def turn(self, wanted: WantedService, state: ServiceState) -> None:
        """Look, beside the supervisor's loop, when it is time."""
        is_looking = self._look is not None and not self._look.done()
        if wanted.serve.follow and not is_looking and time.monotonic() >= self._due and is_settled(wanted, state):
            self._due = time.monotonic() + FOLLOW_S
            self._look = self._pool.submit(self.follow, wanted, state)

    def close(self, timeout_s: float) -> None:
        """Wait for a version that is just being made."""
        if self._look is not None:
            wait([self._look], timeout_s)

    def follow(self, wanted: WantedService, state: ServiceState) -> None:
        try:
            self._follow(wanted, state)
            self.problem = ""
        except Exception as error:  # its run was removed, a store is away: the next look may see more
            text = str(error) if isinstance(error, (LongboatError, OSError)) else f"{type(error).__name__}: {error}"
            if text != self.problem:  # nobody else would tell it: this is a thread of its own
                self.problem = text
                self._say(f"cannot follow: {text}")

    def _follow(self, wanted: WantedService, state: ServiceState) -> None:
        serving = serving_version(wanted, state)
        failed = {each.step for each in wanted.versions if each.number in state.failed and each.run == serving.run}
        step = find_next(self._engine, serving.run, serving.job, wanted.serve, serving=serving.step, failed=failed)
        if step is None:
            return
        self._say(f"follows the {wanted.serve.follow} checkpoint: {serving.run}:{step}")
        self._services.serve(ServiceRequest(run=serving.run, step=step, name=wanted.name, is_followed=True))


def is_settled(wanted: WantedService, state: ServiceState) -> bool:
    """Whether the last change is done, and nobody tries a canary."""
    phase = status_of(wanted, state, is_stopping=False).phase
    return wanted.canary is None and (phase == "ready" or wanted.current in state.failed)

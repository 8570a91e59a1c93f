"""The heartbeat of a submission: while its submitter uploads code, the record says that somebody still works on it.

A run whose first attempt is missing is given up after a while (`handover`): its submitter may have died. A large
upload, or a pod for it whose image is pulled, takes longer than anybody should wait for a dead one.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from longboat.core.errors import LongboatError
from longboat.engines.kubernetes.reconcile.handover import HANDOVER_S
from longboat.engines.kubernetes.record_store import ALIVE
from longboat.kubeapi.client import Client
from longboat.kubeapi.kinds import CONFIG_MAP

BEAT_S = HANDOVER_S / 4
"""Two may be lost, and one late, before anybody gives the run up. Most submissions are over before the first."""


@contextlib.contextmanager
def beating(client: Client, run: str, every_s: float = BEAT_S) -> Iterator[None]:
    """While the block runs."""
    ended = threading.Event()

    def beat() -> None:
        while not ended.wait(every_s):
            alive = {"metadata": {"annotations": {ALIVE: f"{client.now():.0f}"}}}
            with contextlib.suppress(LongboatError):  # an upload that works is not ended by a beat that does not
                client.patch(CONFIG_MAP, run, alive)

    thread = threading.Thread(target=beat, name="submission-heartbeat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()

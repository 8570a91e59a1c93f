"""Process that looks after a detached run with `--failover` until it has started (`longboat.multicluster.failover`).

What it needs comes on its input, for the environment holds secrets. It holds the lock of the command that started it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from longboat.core.errors import LongboatError, NotFound
from longboat.core.guards.decoding import decode
from longboat.core.guards.own_modules import own_program
from longboat.core.jobs import Value
from longboat.engines.engine import Submission
from longboat.engines.shared.files import LogStream, disk, log_line
from longboat.engines.shared.home import Home
from longboat.multicluster.ask import NamedEngine
from longboat.multicluster.failover import LOOK_S, Failover

_PROGRAM = own_program(
    "from longboat.cli.commands.jobs.failover_process import main; main(sys.argv[1], int(sys.argv[2]))", first_root=3
)


class Handover(Value, frozen=True):
    submission: Submission  # without its environment, which may be no text
    environment: tuple[tuple[bytes, bytes], ...]
    places: tuple[tuple[str, str | None], ...]  # with the namespace of each
    failover_s: float | None = None


def give_over(failover: Failover, home: Home, places: Sequence[NamedEngine], failover_s: float | None) -> None:
    """Start the process. Not a fork: other threads may hold locks that nobody would release there."""
    submission = failover.submission
    handover = Handover(
        submission=msgspec.structs.replace(submission, environment={}, stdin=None),
        environment=tuple((os.fsencode(name), os.fsencode(value)) for name, value in submission.environment.items()),
        places=tuple((place.name, namespace_of(place)) for place in places),
        failover_s=failover_s,
    )
    roots = [str(Path(__file__).parents[4]), str(Path(msgspec.__file__).parents[1])]
    with disk(f"start the process that looks after {submission.run_id}"), open(failover.log_path, "ab") as log:
        child = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, str(home.root), str(failover.lock), *roots],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            pass_fds=(failover.lock,),
            start_new_session=True,
        )
        assert child.stdin is not None
        with child.stdin as pipe:
            pipe.write(msgspec.json.encode(handover))
    child.returncode = 0  # it outlives this command: no warning that nobody waits for it
    failover.release()


def namespace_of(place: NamedEngine) -> str | None:
    from longboat.engines.kubernetes.engine import KubernetesEngine

    return place.engine.client.namespace if isinstance(place.engine, KubernetesEngine) else None


def main(root: str, lock: int) -> None:
    """The process itself."""
    from longboat.sdk.places import open_place

    sys.stdout = sys.stderr = LogStream()  # on a full disk the run is looked after nevertheless
    os.set_inheritable(lock, False)
    handover = decode(sys.stdin.buffer.read(), Handover)
    environment = {os.fsdecode(name): os.fsdecode(value) for name, value in handover.environment}
    places = {name: open_place(name, namespace, say) for name, namespace in handover.places}
    submission = msgspec.structs.replace(handover.submission, environment=environment)
    look_after(Failover(Home(Path(root)), places, submission, handover.failover_s, tell=say), lock)


def look_after(failover: Failover, lock: int) -> None:
    with failover.alone(lock):
        try:
            while failover.turn() is None:
                time.sleep(LOOK_S)
        except LongboatError as error:
            say(error.message)
            assert failover.transfer is not None
            if not isinstance(error, NotFound) or failover.transfer.step == "submit":  # else whoever removed it knows
                failover.refuse(error.message)


def say(text: str) -> None:
    log_line(f"{time.strftime('%Y-%m-%dT%H:%M:%S%z')} {text}")

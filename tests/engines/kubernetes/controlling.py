"""Controllers for tests, in this process and as processes of their own; and runs looked at without taking turns."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from longboat.engines.kubernetes import names
from longboat.engines.kubernetes.reconcile.controller import Controller
from longboat.engines.kubernetes.record_store import find_record, read_record
from longboat.engines.kubernetes.records import State
from longboat.kubeapi.client import Client
from longboat.kubeapi.kinds import CONFIG_MAP, JOB, LEASE, PDB, POD, SECRET, SERVICE
from testbed import api

LONG_S = 180.0
OURS = "app.kubernetes.io/managed-by=longboat"

MARKING = """
import os, sys, time
attempt, rank = os.environ["LONGBOAT_ATTEMPT"], os.environ["RANK"]
with open("/marks/marks", "a") as file:
    file.write(f"{attempt} {rank}\\n")
time.sleep(1 if rank == "1" else 600)
sys.exit(3 if attempt == "0" else 7)
"""
"""Fails with 3, then with 7; leaves a mark for every rank that was ever started."""


def state_of(client: Client, run: str) -> State:
    """As it is written down; nothing is done about it."""
    return read_record(find_record(client, run))[1]


def wait_for_end(client: Client, run: str, within_s: float = LONG_S) -> State:
    api.wait_for(f"{run} has ended", lambda: state_of(client, run).is_final, within_s, every_s=0.2)
    return state_of(client, run)


def wait_for_phase(client: Client, run: str, *phases: str) -> State:
    what = f"{run} is {' or '.join(phases)}"
    api.wait_for(what, lambda: state_of(client, run).phase in phases, LONG_S, every_s=0.1)
    return state_of(client, run)


def wait_for_word(client: Client, run: str, word: str) -> None:
    """Until a pod of the run has said it."""

    def is_said() -> bool:
        pods = client.list(POD, labels=names.pods_of(run)).items
        started = [pod for pod in pods if pod["status"]["phase"] in ("Running", "Succeeded", "Failed")]
        return any(word.encode() in b"".join(client.log(pod["metadata"]["name"])) for pod in started)

    api.wait_for(f"{run} says {word}", is_said, LONG_S, every_s=0.3)


def traces(client: Client) -> list[str]:
    """Everything of ours in the namespace."""
    kinds = (CONFIG_MAP, SECRET, SERVICE, JOB, POD, PDB, LEASE)
    return [f"{kind.kind} {one['metadata']['name']}" for kind in kinds for one in client.list(kind, labels=OURS).items]


@contextlib.contextmanager
def controlled(environment: Mapping[str, str], namespace: str, said: list[str]) -> Iterator[Controller]:
    """A controller in this process, which leads without having been elected."""
    with Client.open(namespace=namespace, environment=environment) as client:
        controller = Controller(client, namespaces=[namespace], say=said.append)
        controller.start()
        try:
            yield controller
        finally:
            controller.close()


class Process:
    """`longboat controller` as a process."""

    def __init__(self, environment: Mapping[str, str], namespace: str, log: Path) -> None:
        command = [sys.executable, "-m", "longboat", "controller", "--only", namespace]
        self.log = log
        with open(log, "wb") as file:
            own = {**os.environ, **environment}
            self.process = subprocess.Popen(command, env=own, stdout=file, stderr=file, start_new_session=True)

    @property
    def leads(self) -> bool:
        return " leads" in self.log.read_text()

    def until_leader(self) -> None:
        api.wait_for("it leads", lambda: self.leads, LONG_S, every_s=0.1)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def end(self) -> int:
        """As the cluster ends a pod."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=60)

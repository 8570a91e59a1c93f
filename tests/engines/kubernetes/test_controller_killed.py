"""A controller that is killed after any of its writes: the next one finishes the run, and nothing runs twice."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from longboat.kubeapi.client import Client
from longboat.kubeapi.leases import GATE
from testbed import api
from testbed.clusters import Cluster
from tests.engines.kubernetes.benches import IMAGE, Bench
from tests.engines.kubernetes.controlling import LONG_S, MARKING, controlled, traces, wait_for_end
from tests.engines.kubernetes.flavours import FLAVOURS

pytestmark = [pytest.mark.pods, pytest.mark.soak]

KILLED = 77
AT_ONCE = 3
MORTAL = """
import os, sys, threading, time
from longboat.kubeapi.client import Client
from longboat.kubeapi.connection.transport import Transport
from longboat.engines.kubernetes.reconcile.controller import Controller
from longboat.engines.kubernetes.observe.observe import find_record, read_record

most, namespace, run = int(sys.argv[1]), sys.argv[2], sys.argv[3]
writes, lock, ask = [0], threading.Lock(), Transport.request


def request(self, wanted):
    answer = ask(self, wanted)
    if wanted.method != "GET":
        with lock:
            writes[0] += 1
            if writes[0] == most:
                os._exit(77)
    return answer


Transport.request = request
client = Client.open(namespace=namespace)
controller = Controller(client, namespaces=[namespace], say=print)
controller.start()
while not read_record(find_record(client, run))[1].is_final:
    time.sleep(0.2)
controller.close()
print(writes[0])
"""


class Share:
    """One namespace with one run that fails, is tried again and fails otherwise."""

    def __init__(self, cluster: Cluster, cluster_api: api.Api, base: str, number: int, root: Path) -> None:
        self.namespace = f"{base}-{number}"
        cluster_api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace}})
        account = api.path_of("ServiceAccount", "v1", self.namespace, "default")
        api.wait_for("it has its service account", lambda: cluster_api.get(account) is not None, LONG_S)
        self.bench = Bench(cluster, self.namespace, root / str(number))
        self.marks = root / f"marks-{number}"
        self.marks.mkdir()
        config = Path(self.bench.environment["LONGBOAT_HOME"], "config.yaml")
        config.write_text(json.dumps({"kubernetes": {"image": IMAGE, "allow_host_paths": True}}))
        self.engine = self.bench.open()

    def submit(self) -> str:
        volumes = {"/marks": {"path": str(self.marks)}}
        what = self.bench.submission(
            MARKING, nodes=2, volumes=volumes, grace="0s", retries={"count": 1, "backoff": "0s"}
        )
        return self.engine.submit(what).name

    def serve(self, run: str, most: int) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-X", "faulthandler", "-c", MORTAL, str(most), self.namespace, run]
        environment = {**os.environ, **self.bench.environment}
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=600)

    def check(self, run: str, client: Client) -> None:
        ended = wait_for_end(client, run)
        failures = [one.failure.exit_code if one.failure is not None else None for one in ended.attempts]
        assert (ended.phase, ended.exit_code, failures) == ("failed", 7, [3, 7]), ended
        marks = Counter((self.marks / "marks").read_text().split("\n"))
        assert marks == Counter(["0 0", "0 1", "1 0", "1 1", ""]), "every rank of every attempt ran once"
        self.engine.delete(run)
        # The Lease of one that was killed at the gate stays until somebody needs the gate again.
        assert [one for one in traces(client) if one != f"Lease {GATE}"] == []


@pytest.mark.parametrize("flavour", FLAVOURS[:2])
def test_killed_after_any_write(
    cluster: Cluster, flavour: str, cluster_api: api.Api, namespace: str, tmp_path: Path
) -> None:
    def share(number: int) -> Share:
        with api_lock:
            return Share(cluster, cluster_api, namespace, number, tmp_path)

    api_lock = threading.Lock()
    made: list[Share] = []

    def try_with(most: int) -> int:
        """The code with which the first controller left, and its writes."""
        own = share(most)
        made.append(own)
        run = own.submit()
        done = own.serve(run, most)
        assert done.returncode in (0, KILLED), done.stderr
        if done.returncode == KILLED:
            with controlled(own.bench.environment, own.namespace, []):
                wait_for_end(own.engine.client, run)
        own.check(run, own.engine.client)
        return int(done.stdout.split()[-1]) if done.returncode == 0 else -1

    try:
        total = try_with(0)
        assert total > 5, "the state, a Secret, a Service, a Job, the gate, the end"
        with ThreadPoolExecutor(AT_ONCE) as pool:
            ends = list(pool.map(try_with, range(1, total + 1)))
        assert ends.count(-1) >= total - 3, "almost all were killed; the last few may need one write less"
    finally:
        for one in made:
            one.engine.close()
            one.bench.engine.close()
            with api_lock:
                cluster_api.delete(api.path_of("Namespace", "v1", name=one.namespace))

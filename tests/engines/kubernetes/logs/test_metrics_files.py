"""Files of metrics of runs whose pods have ended, from a server that has their logs."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from longboat.core.jobs import Job, Retries, Role
from longboat.core.runs import Attempt
from longboat.engines.kubernetes.logs.metrics_files import node_files
from longboat.engines.kubernetes.observe.snapshot import PodView
from longboat.engines.kubernetes.records import State
from tests.engines.kubernetes.run_samples import NOW, ended, opened, snapshot
from tests.engines.kubernetes.test_bounds import client_of
from tests.launcher.sampling.test_log_copy import written

JOB = Job(
    name="train",
    roles=(Role(name="worker", run="true", nodes=2, spares=1),),
    ends=("worker",),
    retries=Retries(count=2),
)


class LogServer:
    """Serves the logs of pods by their names; those of others are empty."""

    def __init__(self, folder: Path) -> None:
        logs = self.logs = dict[str, bytes]()
        self._folder = folder

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                log = logs.get(self.path.split("/")[6], b"")
                self.send_response(200)
                self.send_header("Content-Length", str(len(log)))
                self.end_headers()
                self.wfile.write(log)

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def leave(self, index: int, rank: int, attempt: int = 0) -> None:
        """Have a pod's log hold the metrics of a rank that it had in this attempt."""
        log = written(self._folder, [["step", 5.0, rank, 3, {"loss": 0.5}]])
        log = log.replace(b"node.err+", b"node.err@%d+" % attempt) if attempt else log
        name = f"train-a0-worker-{index}"
        self.logs[name] = self.logs.get(name, b"") + log


@pytest.fixture
def server(tmp_path: Path) -> Iterator[LogServer]:
    serving = LogServer(tmp_path)
    yield serving
    serving.server.shutdown()
    serving.server.server_close()


def files_of(server: LogServer, folder: Path, state: State, *pods: PodView) -> tuple[list[tuple[int, str]], list[str]]:
    notices: list[str] = []
    with client_of(f"http://127.0.0.1:{server.server.server_address[1]}", folder) as client:
        files = node_files(client, snapshot(*pods, job_=JOB, state=state), notices.append)
    return sorted((file.attempt, file.node) for file in files), notices


def test_nobody_lacks_the_metrics_of_a_spare_that_had_no_ranks(server: LogServer, tmp_path: Path) -> None:
    server.leave(0, 0)
    server.leave(1, 1)
    state = State(phase="succeeded", started=NOW - 30, attempts=(opened(),))
    files, notices = files_of(server, tmp_path, state, *(ended(index) for index in range(3)))
    assert files == [(0, "worker-0"), (0, "worker-1")] and notices == []


def test_metrics_are_those_of_the_node_that_a_pod_played(server: LogServer, tmp_path: Path) -> None:
    """The pod of worker-1 was lost in the first attempt; the spare had its rank in the second."""
    server.leave(0, 0)
    server.leave(0, 0, attempt=1)
    server.leave(2, 1, attempt=1)
    again = Attempt(number=1, started=NOW - 19, restart="in-place", spares={"worker-1": "worker-2"})
    state = State(phase="succeeded", started=NOW - 30, attempts=(opened(), again))
    files, notices = files_of(server, tmp_path, state, ended(0), ended(2))
    assert files == [(0, "worker-0"), (1, "worker-0"), (1, "worker-1")]
    assert notices == ["metrics of worker-1 went with their pods: the run had no storage"]

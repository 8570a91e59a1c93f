"""Who reaches the controller's port: pages for probes and figures, and nothing of a job, a log or a secret."""

from __future__ import annotations

import http.client
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from testbed import api
from testbed.clusters import Cluster
from tests.engines.kubernetes.benches import Bench

pytestmark = pytest.mark.cluster

OTHERS = (
    "/", "/runs", "/api/runs", "/api/state", "/logs", "/logs/train", "/metrics/train", "/metrics/../../etc/passwd",
    "/config", "/debug/pprof/", "/..%2f..%2fetc/passwd", "//etc/passwd",
    "/healthz/../metrics/x", "/readyz?verbose&run=train",
)  # fmt: skip


def ask(port: int, method: str, path: str) -> tuple[int, str]:
    line = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        line.putrequest(method, path, skip_host=False)
        line.endheaders()
        answer = line.getresponse()
        return answer.status, answer.read(1 << 20).decode("utf-8", "replace")
    except http.client.BadStatusLine:
        return 0, ""  # hung up
    finally:
        line.close()


def answers(port: int) -> bool:
    try:
        return ask(port, "GET", "/readyz")[0] in (200, 503)
    except OSError:
        return False


@pytest.fixture
def port(cluster: Cluster, namespace: str, tmp_path: Path) -> Iterator[int]:
    """Of `longboat controller` for this namespace, as a process."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        number = int(free.getsockname()[1])
    words = ["controller", "--only", namespace, "--lease", namespace, "--health-port", str(number)]
    home = {"KUBECONFIG": str(cluster.kubeconfig), "LONGBOAT_HOME": str(tmp_path / "controller")}
    with open(tmp_path / "controller.log", "wb") as log:
        process = subprocess.Popen([sys.executable, "-m", "longboat", *words], env={**os.environ, **home}, stderr=log)
    try:
        api.wait_for("it answers", lambda: answers(number), 60.0)
        yield number
    finally:
        process.terminate()
        process.wait(60)


def test_who_reaches_the_controller_reads_figures_and_nothing_else(
    cluster: Cluster, namespace: str, kwok_nodes: Callable[..., list[str]], tmp_path: Path, port: int
) -> None:
    kwok_nodes("1:cpu")
    bench = Bench(cluster, namespace, tmp_path / "bench")
    bench.environment["PASSWORD"] = "NEEDLE-secret"
    fields = {"env": {"PLAIN": "NEEDLE-env"}, "secrets": {"PASSWORD": {"env": "PASSWORD"}}, "retries": 1}
    run = ["python", "-c", "print('NEEDLE-command')"]
    try:
        bench.engine.submit(bench.submission("", name="train", run=run, workdir=None, **fields))
        api.wait_for("the run counts", lambda: 'run="train"' in ask(port, "GET", "/metrics")[1], 60.0)
        assert "NEEDLE" not in ask(port, "GET", "/metrics")[1]
        for path in OTHERS:
            status, text = ask(port, "GET", path)
            assert status in (0, 400, 404) or (path.startswith("/readyz?") and status == 200), (path, status)
            assert "train" not in text and "NEEDLE" not in text and "root:" not in text
        for method in ("POST", "PUT", "DELETE", "PATCH"):
            for path in ("/metrics", "/healthz", "/api/runs/train/stop"):
                assert ask(port, method, path)[0] in (0, 400, 404, 405, 501), (method, path)
        assert not bench.engine.status("train").is_final
    finally:
        bench.close()

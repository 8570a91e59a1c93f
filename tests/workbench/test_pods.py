"""The workbench in real pods: JupyterLab, TensorBoard and a shell, reached through our port-forward, nothing left.

The programs are those of the cached environment, mounted into the pods, whose Python is of the same version.
"""

from __future__ import annotations

import contextlib
import json
import re
import select
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from longboat.engines.kubernetes.engine import KubernetesEngine
from longboat.workbench.forwarding import PortForward
from testbed.clusters import Cluster
from testbed.proxy import ApiProxy
from tests.conformance.clusters import ClusterPlace, open_cluster
from tests.frameworks.conftest import environment
from tests.workbench.conftest import fetch
from tests.workbench.test_board import WRITER

IMAGES_PYTHON = (3, 11)
COMMAND_TIMEOUT_S = 240.0

pytestmark = [pytest.mark.pods]
OPENED = (
    ("/api/v1", "services"),
    ("/apis/networking.k8s.io/v1", "ingresses"),
    ("/apis/networking.k8s.io/v1", "networkpolicies"),
)


class Bench:
    """A namespace with a storage, a project, and the command line."""

    def __init__(self, place: ClusterPlace, project: Path) -> None:
        self.place, self.project = place, project

    def command(self, verb: str, *words: str) -> list[str]:
        return [str(Path(sys.executable).parent / "longboat"), verb, "--namespace", self.place.namespace, *words]

    def __call__(self, verb: str, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(verb, *words),
            cwd=self.project,
            env=dict(self.place.environment),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=COMMAND_TIMEOUT_S,
        )

    @contextlib.contextmanager
    def attached(self, verb: str, *words: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
        """A command that stays, and the URL that it prints first."""
        process = subprocess.Popen(
            self.command(verb, *words),
            cwd=self.project,
            env=dict(self.place.environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            assert process.stdout is not None and process.stderr is not None
            readable, _, _ = select.select([process.stdout], [], [], COMMAND_TIMEOUT_S)
            if not readable:
                process.kill()
            url = process.stdout.readline().strip()
            assert url.startswith("http://127.0.0.1:"), process.stderr.read()
            yield process, url
        finally:
            process.kill()
            process.communicate()


@pytest.fixture
def bench(cluster: Cluster, namespace: str, tmp_path: Path) -> Iterator[Bench]:
    project = tmp_path / "project"
    project.mkdir()
    with open_cluster(tmp_path, cluster, namespace, "kubernetes") as place:
        yield Bench(place, project)


@pytest.fixture
def programs() -> list[str]:
    """Flags by which pods have TensorBoard and JupyterLab."""
    folder = environment("workbench")
    if sys.version_info[:2] != IMAGES_PYTHON:
        pytest.skip("the image's Python is another than that of this environment")
    packages = folder / "lib" / "python{}.{}".format(*IMAGES_PYTHON) / "site-packages"
    variables = {
        "PYTHONPATH": packages,
        "JUPYTER_PATH": folder / "share" / "jupyter",
        "JUPYTERLAB_DIR": folder / "share" / "jupyter" / "lab",
        "HOME": "/tmp",
    }
    flags = [f"--env={name}={value}" for name, value in variables.items()]
    return [f"--volume={folder}={folder}:ro", *flags]


def wait_for(condition: Callable[[], bool], within_s: float = 60.0) -> None:
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


@pytest.mark.frameworks
def test_a_notebook_whose_edits_come_back(bench: Bench, programs: list[str]) -> None:
    (bench.project / "model.py").write_text("width = 3\n")
    with bench.attached("notebook", "--no-browser", *programs) as (process, url):
        (token,) = parse_qs(urlsplit(url).query)["token"]
        api = f"http://{urlsplit(url).netloc}/api"
        listed = json.loads(fetch(f"{api}/contents", token=token))
        assert {entry["name"] for entry in listed["content"]} >= {"model.py", "first-steps.ipynb"}
        body = json.dumps({"type": "file", "format": "text", "content": "width = 4\n"}).encode()
        headers = {"Authorization": f"token {token}"}
        request = urllib.request.Request(f"{api}/contents/model.py", body, headers, method="PUT")
        urllib.request.urlopen(request, timeout=60).close()
        wait_for(lambda: (bench.project / "model.py").read_text() == "width = 4\n")
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=COMMAND_TIMEOUT_S)
        assert (process.returncode, "notebook goes on" in errors) == (0, True), errors
    objects = bench.place.api.call("GET", f"/api/v1/namespaces/{bench.place.namespace}/configmaps")
    secrets = bench.place.api.call("GET", f"/api/v1/namespaces/{bench.place.namespace}/secrets")
    assert token not in json.dumps([objects, secrets])
    assert token not in bench("logs", "notebook").stdout
    with bench.attached("notebook", "--no-browser", *programs) as (_, again):
        assert parse_qs(urlsplit(again).query)["token"] == [token]
        assert json.loads(fetch(f"http://{urlsplit(again).netloc}/api/contents/model.py", token=token))
    assert bench("stop", "notebook").returncode == 0
    assert bench("rm", "notebook").returncode == 0
    assert bench.place.traces("notebook", "") == []


@pytest.mark.frameworks
def test_a_board_over_the_storage_of_the_runs(bench: Bench, programs: list[str]) -> None:
    (bench.project / "write.py").write_text(WRITER.replace('"logs"', 'os.environ["LONGBOAT_ARTIFACTS_DIR"], "logs"'))
    trained = bench("run", "-q", "--id", "cnn", *programs, "write.py", "2")
    assert trained.returncode == 0, trained.stderr
    with bench.attached("board", "cnn", "--no-browser", *programs) as (process, url):
        assert json.loads(fetch(url + "data/runs")) == ["cnn/train"]
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=COMMAND_TIMEOUT_S)
        assert process.returncode == 0
    assert "stopped" in bench("ps", "-a").stdout
    assert bench("rm", "board", "cnn").returncode == 0
    assert bench.place.traces("board", "") == []


@pytest.mark.frameworks
def test_a_notebook_that_others_reach(bench: Bench, programs: list[str]) -> None:
    """Through a port of the node, and an Ingress; nothing of that is left."""
    asked = ("--no-browser", "-d", *programs)
    opened = bench("notebook", "--node-port", "--ingress", "lab.example.org", *asked)
    assert opened.returncode == 0, opened.stderr
    assert (
        "is reached from outside too: http://lab.example.org/lab" in opened.stderr and "not encrypted" in opened.stderr
    )
    service = bench.place.api.call("GET", f"/api/v1/namespaces/{bench.place.namespace}/services/notebook-open")
    (port,) = service["spec"]["ports"]
    (pod,) = bench.place.api.call("GET", f"/api/v1/namespaces/{bench.place.namespace}/pods")["items"]
    (token,) = re.findall(r"token=([\w-]+)", opened.stderr)
    host = f"{pod['status']['hostIP']}:{port['nodePort']}"
    assert "kernel" in fetch(f"http://{host}/api/status", token=token)
    with pytest.raises(urllib.error.HTTPError):
        fetch(f"http://{host}/api/status")
    names = [f"{group}/namespaces/{bench.place.namespace}/{kind}" for group, kind in OPENED]
    there = [entry["metadata"]["name"] for path in names for entry in bench.place.api.call("GET", path)["items"]]
    assert there.count("notebook-open") == 3
    again = bench("notebook", "--node-port", "--ingress", "lab.example.org", *asked)
    assert again.returncode == 0 and token in again.stderr
    assert bench("stop", "notebook").returncode == 0
    assert bench("rm", "notebook").returncode == 0
    assert bench.place.traces("notebook", "") == []
    wait_for(lambda: [item for path in names for item in bench.place.api.call("GET", path)["items"]] == [])
    inside = bench("notebook", *asked)
    assert inside.returncode == 0, inside.stderr
    refused = bench("notebook", "--node-port", *asked)
    assert refused.returncode == 201 and "listens inside of its pod only" in refused.stderr
    assert bench("rm", "--force", "--yes", "notebook").returncode == 0


@pytest.mark.soak  # exec and edits in pods have tests of their own
def test_a_shell_whose_files_come_back(bench: Bench) -> None:
    (bench.project / "a.py").write_text("one")
    done = bench("shell", "--", "sh", "-c", "pwd; printf two > a.py; exit 5")
    assert (done.returncode, done.stdout) == (5, "/longboat/node/work\n"), done.stderr
    assert (bench.project / "a.py").read_text() == "two"
    assert bench("rm", "shell").returncode == 0
    assert bench.place.traces("shell", "") == []


def test_a_port_forward_outlasts_lost_connections(bench: Bench, api_proxy: ApiProxy) -> None:
    (bench.project / "page").write_text("a page")
    served = "exec python3 -m http.server --bind 127.0.0.1 8123"
    assert bench("run", "-d", "--id", "web", "--workdir", ".", "--", served).returncode == 0
    variables = {**bench.place.environment, "KUBECONFIG": str(api_proxy.kubeconfig)}
    engine = KubernetesEngine(namespace=bench.place.namespace, environment=variables)
    wait_for(lambda: engine.status("web").phase == "running")
    notes: list[str] = []
    with PortForward(engine.client, "web", 8123, report=notes.append) as forward:
        address = f"http://127.0.0.1:{forward.port}/page"
        wait_for(lambda: is_answered(address))
        notes.clear()
        api_proxy.cut()
        waiting = Later(lambda: fetch(address))
        wait_for(lambda: bool(notes))
        api_proxy.restore()
        assert waiting.result() == "a page"  # it waited
        assert notes[0].startswith("the way to web is lost")
        assert notes[-1] == "web is reached again"
    with pytest.raises(OSError):
        fetch(address)


def is_answered(address: str) -> bool:
    try:
        return fetch(address) == "a page"
    except OSError:  # the server in the pod does not listen yet
        return False


class Later:
    """A call in a thread, and what it returned."""

    def __init__(self, work: Callable[[], str]) -> None:
        from concurrent.futures import ThreadPoolExecutor

        self._pool = ThreadPoolExecutor(1)
        self._future = self._pool.submit(work)

    def result(self) -> str:
        return self._future.result(COMMAND_TIMEOUT_S)

"""The example that trains and serves, without Longboat around it; docs/serving.md runs it as a run and a service."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed import network
from testbed.clusters import Cluster
from tests.cli.conftest import Longboat
from tests.conformance.clusters import open_cluster
from tests.docs.test_azure_recipe import give_numpy
from tests.storage.conftest import azure, s3
from tests.storage.realstores import ALONE, Running, Unavailable, azure_server, s3_server

__all__ = ["azure", "s3"]
EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "train-and-serve"


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def ask(url: str, data: bytes | None = None) -> dict[str, object]:
    """The answer, once somebody listens."""
    deadline = time.monotonic() + 60
    while True:
        try:
            with urllib.request.urlopen(url, data=data, timeout=30) as response:
                answer: dict[str, object] = json.load(response)
                return answer
        except urllib.error.HTTPError:
            raise
        except OSError:
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_it_trains_then_serves_what_it_learned(tmp_path: Path) -> None:
    for name in ("app.py", "digits.npz"):
        shutil.copy(EXAMPLE / name, tmp_path)
    refused = subprocess.run([sys.executable, "app.py"], cwd=tmp_path, capture_output=True, text=True)
    assert refused.returncode == 1 and "no checkpoint" in refused.stderr
    code = "import sys; sys.modules['longboat'] = None; sys.argv[0] = 'app.py'; import app; app.main()"
    trained = subprocess.run(
        [sys.executable, "-c", code, "--train", "--epochs", "5"], cwd=tmp_path, capture_output=True, text=True
    )
    assert trained.returncode == 0, trained.stderr
    accuracy = re.fullmatch(r"accuracy (0\.\d+)\n", trained.stdout)
    assert accuracy is not None and float(accuracy[1]) > 0.85
    port = free_port()
    server = subprocess.Popen(
        [sys.executable, "-c", code, "--port", str(port)], cwd=tmp_path, stdout=subprocess.DEVNULL
    )
    try:
        assert float(str(ask(f"http://127.0.0.1:{port}/")["accuracy"])) > 0.85
        answer = ask(f"http://127.0.0.1:{port}/predict", json.dumps([0.0] * 64).encode())
        assert isinstance(answer["probabilities"], list) and len(answer["probabilities"]) == 10
        try:
            ask(f"http://127.0.0.1:{port}/predict", b"[1, 2]")
            raise AssertionError("64 numbers are expected")
        except urllib.error.HTTPError as error:
            assert error.code == 400
    finally:
        server.kill()
        server.wait()


@pytest.fixture
def longboat(home: Path, tmp_path: Path) -> Iterator[Longboat]:
    """The command line in a copy of the example."""
    shutil.copytree(EXAMPLE, tmp_path / "example")
    command = Longboat(tmp_path / "example")
    yield command
    command("serve", "stop", "digits-app", code=None)
    command("rm", "--all", "--force", "--yes")


def keep_in(longboat: Longboat, kind: str, server: Running) -> None:
    """The example's job has its checkpoints in this store."""
    longboat.environment.update({name: value for name, value in server.environment.items() if name != "HOME"})
    secrets = [name for name in server.environment if name.endswith(("KEY", "KEY_ID", "STRING"))]
    env = {name: value for name, value in server.environment.items() if name not in (*secrets, "HOME")}
    scheme = {"s3": "s3", "azure": "az"}[kind]
    text = (longboat.folder / "job.yaml").read_text()
    to = f"checkpoints: {scheme}://data/{uuid.uuid4().hex}\nsecrets: {json.dumps(secrets)}\nenv: {json.dumps(env)}\n"
    (longboat.folder / "job.yaml").write_text(re.sub("# checkpoints: az://.*\n", to, text))


@pytest.mark.stores
@pytest.mark.parametrize("kind", ["s3", "azure"])
def test_what_it_learned_is_served_from_a_real_store(
    longboat: Longboat, kind: str, tmp_path: Path, home: Path, request: pytest.FixtureRequest
) -> None:
    """The run's own copy is removed before: what is served came from the store."""
    keep_in(longboat, kind, request.getfixturevalue(kind))
    trained = longboat("run", "-q", "job.yaml")
    accuracy = re.search(r"accuracy (0\.\d+)", trained.out)
    assert accuracy is not None and float(accuracy[1]) > 0.85
    shutil.rmtree(home / "checkpoints" / "digits-app")
    longboat("serve", "job.yaml", "-d", "--wait")
    (service,) = json.loads(longboat("serve", "ls", "-o", "json").out)
    assert service["ready"] == 2
    assert float(str(ask(f"{service['url']}/")["accuracy"])) == pytest.approx(float(accuracy[1]), abs=0.01)
    answer = ask(f"{service['url']}/predict", json.dumps([0.0] * 64).encode())
    assert isinstance(answer["probabilities"], list) and len(answer["probabilities"]) == 10


@pytest.mark.pods
@pytest.mark.stores
@pytest.mark.soak
@pytest.mark.parametrize("kind", ["s3", "azure"])
def test_in_pods_it_is_served_from_a_real_store(kind: str, cluster: Cluster, namespace: str, tmp_path: Path) -> None:
    give_numpy(cluster)
    example = shutil.copytree(EXAMPLE, tmp_path / "example")
    serve = {"s3": s3_server, "azure": azure_server}[kind]
    try:
        server = serve(tmp_path / "store", network.gateway_address(cluster, 0))
    except Unavailable as reason:
        pytest.skip(str(reason))
    with server as running, open_cluster(tmp_path, cluster, namespace, "kubernetes") as place:
        longboat = Longboat(example)
        longboat.environment = {**place.environment, **ALONE, "LONGBOAT_ENGINE": "kubernetes"}
        longboat("config", "set", "kubernetes.namespace", namespace)
        keep_in(longboat, kind, running)
        with open(example / "job.yaml", "a") as file:
            file.write("\nimage: registry.example.org/numpy:2\n")
        trained = longboat("run", "-q", "job.yaml")
        accuracy = re.search(r"accuracy (0\.\d+)", trained.out)
        assert accuracy is not None and float(accuracy[1]) > 0.85
        assert not list(place.storage.rglob("step-*")), "checkpoints are in the store alone"
        longboat("serve", "job.yaml", "-d", "--wait")
        (service,) = json.loads(longboat("serve", "ls", "-o", "json").out)
        assert (service["ready"], service["phase"]) == (2, "ready")
        pods = place.api.call("GET", f"/api/v1/namespaces/{namespace}/pods")["items"]
        answering = [pod for pod in pods if pod["status"]["phase"] == "Running"]
        assert len(answering) == 2
        for pod in answering:
            url = f"http://{pod['status']['podIP']}:{pod['spec']['containers'][0]['ports'][0]['containerPort']}/"
            assert float(str(ask(url)["accuracy"])) == pytest.approx(float(accuracy[1]), abs=0.01)
        longboat("serve", "stop", "digits-app")
        longboat("rm", "--purge", "--yes", "digits-app")

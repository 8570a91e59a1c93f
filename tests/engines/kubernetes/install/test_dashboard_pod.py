"""The dashboard in its own pod, on a real node, under the rights it was given; asked through a port-forward."""

from __future__ import annotations

import base64
import http.client
import json
import re
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from longboat.engines.kubernetes.install.controller_manifests import HOME, rules_of
from longboat.engines.kubernetes.install.dashboard_manifests import DASHBOARD, READS
from longboat.kubeapi.kinds import POD
from testbed import api, images
from testbed.clusters import Cluster
from testbed.fixtures import Kubectl
from tests.engines.kubernetes.benches import Bench
from tests.engines.kubernetes.controlling import wait_for_word
from tests.engines.kubernetes.install.test_install import cluster, load_image, longboat, own_cluster
from tests.engines.kubernetes.test_documented_roles import on_page
from tests.web.test_users import bind

__all__ = ["cluster", "own_cluster"]  # fixtures

pytestmark = [pytest.mark.pods, pytest.mark.xdist_group("installation")]

TRAINER = """
import time
import longboat
for step in range(600):
    longboat.step(step, loss=1 / (step + 1))
    print("ready, step", step, flush=True)
    time.sleep(0.5)
"""
PAGES = ("runs", "nodes", "queue", "sweeps", "services", "autoscaler", "clusters")


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def data(self) -> Any:
        return json.loads(self.body)


class Visitor:
    """Who asks at an address of this machine, as a browser would: with what it was given to say."""

    def __init__(self, address: tuple[str, int], **headers: str) -> None:
        self.address, self.headers = address, headers

    def ask(self, method: str, target: str, data: Any = None, **headers: str) -> Answer:
        connection = http.client.HTTPConnection(*self.address, timeout=60)
        try:
            body = None if data is None else json.dumps(data)
            connection.request(method, target, body, {**self.headers, **headers})
            answer = connection.getresponse()
            return Answer(answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read())
        finally:
            connection.close()

    def post(self, target: str) -> Answer:
        csrf = str(self.ask("GET", "/api/state").data["csrf"])
        return self.ask("POST", target, {}, **{"x-longboat-csrf": csrf})


@contextmanager
def forwarded(kubectl: Kubectl) -> Iterator[tuple[str, int]]:
    """The dashboard's Service at a free port of this machine."""
    command = kubectl.command("-n", HOME, "port-forward", f"service/{DASHBOARD}", ":8080")
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            port = re.search(r"127\.0\.0\.1:(\d+) -> 8080", line)
            assert port is not None, line
            yield "127.0.0.1", int(port[1])
        finally:
            process.terminate()


@contextmanager
def proxy(behind: tuple[str, int], token: str) -> Iterator[tuple[str, int]]:
    """An authenticating proxy: who logs in by HTTP Basic is that user, whatever else the request says."""

    class Handler(BaseHTTPRequestHandler):
        def pass_on(self) -> None:
            login = self.headers.get("Authorization", "").removeprefix("Basic ")
            user = base64.b64decode(login).decode().partition(":")[0]
            kept = {name: value for name, value in self.headers.items() if name.lower() == "x-longboat-csrf"}
            said = {"X-Longboat-Proxy": token, "X-Forwarded-User": user, "X-Forwarded-Groups": ""}
            body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
            answer = Visitor(behind).ask(
                self.command, self.path, json.loads(body) if body else None, **kept, **said, Host="lab.example"
            )
            self.send_response(answer.status)
            self.send_header("Content-Length", str(len(answer.body)))
            self.end_headers()
            self.wfile.write(answer.body)

        do_GET = do_POST = pass_on

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield "127.0.0.1", server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()


def logged_in(address: tuple[str, int], user: str) -> Visitor:
    return Visitor(address, Authorization="Basic " + base64.b64encode(f"{user}:password".encode()).decode())


@pytest.fixture
def bench(cluster: Cluster, namespace: str, tmp_path: Path) -> Iterator[Bench]:
    load_image(cluster.name, "longboat-ui")
    made = Bench(cluster, namespace, tmp_path)
    made.engine.submit(made.submission(TRAINER, "theirs", cpus=0.05))
    wait_for_word(made.engine.client, "theirs", "ready")
    yield made
    longboat(made, "install", "--remove")
    made.close()


def token_of(kubectl: Kubectl) -> str:
    secret = kubectl("-n", HOME, "get", "secret", DASHBOARD, "-o", "jsonpath={.data.token}")
    return base64.b64decode(secret).decode()


def log_of(kubectl: Kubectl) -> str:
    return kubectl("-n", HOME, "logs", f"deploy/{DASHBOARD}")


def sees(visitor: Visitor) -> bool:
    answer = visitor.ask("GET", "/api/runs")
    return answer.status == 200 and [row["id"] for row in answer.data["runs"]] == ["theirs"]


def test_its_pod_shows_runs_to_whoever_has_the_token_and_changes_nothing(bench: Bench, kubectl: Kubectl) -> None:
    done = longboat(bench, "install", "--image", images.reference("longboat-ui"), "--only", bench.namespace, "--ui")
    assert f"Deployment {HOME}/{DASHBOARD}" in done.stdout.splitlines()
    (pod,) = bench.engine.client.list(POD, namespace=HOME, labels=f"app.kubernetes.io/name={DASHBOARD}").items
    assert pod["spec"]["securityContext"]["runAsNonRoot"] and not pod["status"]["containerStatuses"][0]["restartCount"]
    token = token_of(kubectl)
    with forwarded(kubectl) as address:
        stranger = Visitor(address)
        assert stranger.ask("GET", "/api/runs").status == 401 and stranger.ask("GET", "/?token=guess").status == 401
        entered = stranger.ask("GET", f"/?token={token}")
        assert (entered.status, entered.headers["location"]) == (303, "/")
        reader = Visitor(address, Cookie=entered.headers["set-cookie"].partition(";")[0])
        assert b"<!doctype html>" in reader.ask("GET", "/").body
        api.wait_for("the run is listed", lambda: sees(reader), 60.0)
        place = reader.ask("GET", "/api/runs").data["runs"][0]["cluster"]
        for page in PAGES:
            answer = reader.ask("GET", f"/api/{page}")
            assert answer.status == 200, (page, answer.body)
        one = f"/api/runs/{place}/theirs"
        shown = reader.ask("GET", one)
        assert shown.status == 200 and shown.data["status"]["phase"] == "running", shown.body
        assert not any(shown.data["may"].values())
        assert "python:latest@sha256:" in shown.data["status"]["images"]["worker"]
        lines = reader.ask("GET", f"{one}/logs?to=5").data["lines"]
        assert lines and all("ready, step" in line["text"] for line in lines)
        for action in ("stop", "remove", "retry", "resume"):
            assert reader.post(f"{one}/{action}").status == 403
    assert not bench.engine.status("theirs").is_final
    log = log_of(kubectl)
    assert token not in log and "forbidden" not in log.lower() and "Traceback" not in log, log


def test_behind_a_proxy_the_clusters_rights_decide(bench: Bench, kubectl: Kubectl) -> None:
    """alice may stop, bob may look, mallory has no rights, carol is nobody that the dashboard may act as."""
    bind(kubectl, "alice", on_page("role.yaml")["rules"])
    bind(kubectl, "bob", rules_of(READS))
    bind(kubectl, "carol", on_page("role.yaml")["rules"])
    people = [word for name in ("alice", "bob", "mallory") for word in ("--ui-user", name)]
    words = ("install", "--image", images.reference("longboat-ui"), "--only", bench.namespace, "--ui")
    longboat(bench, *words, "--public-url", "https://lab.example", *people)
    with forwarded(kubectl) as behind, proxy(behind, token_of(kubectl)) as front:
        assert Visitor(behind).ask("GET", "/api/runs", Host="lab.example").status == 401, "not through the proxy"
        said = {"Host": "lab.example", "X-Forwarded-User": "alice"}
        assert Visitor(behind).ask("GET", "/api/runs", **said).status == 401
        alice, bob, mallory, carol = (logged_in(front, name) for name in ("alice", "bob", "mallory", "carol"))
        for visitor in (alice, bob):
            api.wait_for("the run is listed", lambda visitor=visitor: sees(visitor), 60.0)  # type: ignore[misc]
        assert bob.ask("GET", "/api/state").data["user"] == "bob"
        assert mallory.ask("GET", "/api/runs").status == carol.ask("GET", "/api/runs").status == 403
        place = alice.ask("GET", "/api/runs").data["runs"][0]["cluster"]
        refused = bob.post(f"/api/runs/{place}/theirs/stop")
        assert refused.status == 403 and "configmaps" in refused.data["error"], refused.body
        assert not bench.engine.status("theirs").is_final
        stopped = alice.post(f"/api/runs/{place}/theirs/stop")
        assert stopped.status == 200, stopped.body
    assert bench.engine.wait("theirs", timeout_s=60).phase == "stopped"
    assert "Traceback" not in log_of(kubectl)

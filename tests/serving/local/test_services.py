"""Services of this machine, end to end with real processes: updates, kills, golden cases, nothing left behind."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from longboat.core.errors import NotFound, Refused, UsageError
from longboat.core.jobs import Checkpoints, Job, Role, Serve
from longboat.engines.engine import Submission
from longboat.engines.local.engine import LocalEngine
from longboat.engines.shared.files import remove_abandoned
from longboat.sdk.services import explain_service
from longboat.serving.local.records import ServiceFolder
from longboat.serving.local.services import LocalServices
from longboat.serving.requests import ServiceRequest
from longboat.storage.inventory.actions import promote

TRAIN = """
import json, os, longboat
for step in (1, 2):
    with longboat.checkpoint(step) as folder:
        with open(os.path.join(folder, "model.json"), "w") as file:
            json.dump(step, file)
        longboat.golden([1, 2], [{"y": step}, {"y": 2 * step}])
"""
APP = """
import json, os, sys, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
with open(os.path.join(os.environ["LONGBOAT_RESUME_FROM"], "model.json")) as file:
    model = json.load(file)
error = float(sys.argv[1])

class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def log_message(self, *words): pass
    def do_GET(self): self.reply({"pid": os.getpid()})
    def do_POST(self):
        value = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        time.sleep(0.01)
        self.reply({"y": value * model + error})
    def reply(self, value):
        data = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

print("listens", flush=True)
ThreadingHTTPServer(("127.0.0.1", int(os.environ["PORT"])), Handler).serve_forever()
"""
GOOD, BAD = ("python", "app.py", "0"), ("python", "app.py", "0.5")


class Load:
    """Clients that ask without a pause, until they are told to stop."""

    def __init__(self, url: str, clients: int = 4) -> None:
        self._at = urlsplit(url)
        self.answers: dict[float, int] = {}
        self.failed: list[str] = []
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._ask) for _ in range(clients)]
        for thread in self._threads:
            thread.start()

    def _ask(self) -> None:
        connection = http.client.HTTPConnection(self._at.hostname or "", self._at.port, timeout=70)
        while not self._over.is_set():
            try:
                connection.request("POST", "/predict", "1")
                response = connection.getresponse()
                data = response.read()
                if response.status != 200:
                    self.failed.append(f"{response.status} {data!r}")
                else:
                    value = json.loads(data)["y"]
                    self.answers[value] = self.answers.get(value, 0) + 1
            except (OSError, http.client.HTTPException) as error:
                self.failed.append(repr(error))
                connection.close()
        connection.close()

    def stop(self) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()


def eventually(check: Callable[[], Any], words: str, happened: Callable[[], Sequence[str]] = tuple) -> Any:
    """`happened`: what else is said where it takes too long."""
    deadline = time.monotonic() + 60
    while not (value := check()):
        assert time.monotonic() < deadline, "\n".join([words, *happened()])
        time.sleep(0.05)
    return value


def get(url: str) -> dict[str, Any]:
    at = urlsplit(url)
    connection = http.client.HTTPConnection(at.hostname or "", at.port, timeout=70)
    connection.request("GET", "/")
    value: dict[str, Any] = json.loads(connection.getresponse().read())
    connection.close()
    return value


@pytest.fixture
def services(home: Path, tmp_path: Path) -> Iterator[LocalServices]:
    """A home with a run `train` that has the checkpoints 1 and 2."""
    project = tmp_path / "project"
    project.mkdir()
    (project / "train.py").write_text(TRAIN)
    (project / "app.py").write_text(APP)
    engine = LocalEngine(home)
    serve = Serve(replicas=2, ready="/", drain_s=20.0)
    role = Role(name="worker", run=("python", "train.py"))
    job = Job(name="train", roles=(role,), ends=("worker",), serve=serve, checkpoints=Checkpoints())
    engine.submit(Submission(job=job, base=str(project), environment=os.environ, run_id="train"))
    assert engine.wait("train").phase == "succeeded"
    services = LocalServices(engine)
    yield services
    for status in services.list():
        services.stop(status.name)


def files_of(home: Path) -> set[str]:
    """What is in a home, without the two locks that are never removed."""
    kept = ("queue", "bundles")
    paths = (path.relative_to(home) for path in home.rglob("*"))
    return {str(path) for path in paths if path.parts[0] not in kept}


def test_no_request_is_lost_over_an_update_and_a_killed_replica(services: LocalServices, home: Path) -> None:
    before = files_of(home)
    services.serve(ServiceRequest(run="train", step=1, name="svc", command=GOOD))
    status = services.wait("svc", timeout_s=60)
    assert (status.replicas, status.ready, status.run, status.step) == (2, 2, "train", 1)
    load = Load(status.url)
    try:
        os.kill(get(status.url)["pid"], signal.SIGKILL)
        eventually(
            lambda: services.status("svc").ready == 2 and "ended" in "".join(services.events("svc")), "not healed"
        )
        services.serve(ServiceRequest(run="train", name="svc"))
        assert services.wait("svc", timeout_s=60).step == 2
        eventually(lambda: load.answers.get(2.0, 0) > 20, "the new version takes requests")
        # A version whose answers are not the golden ones never takes a request.
        services.serve(ServiceRequest(run="train", step=1, name="svc", command=BAD))
        with pytest.raises(Refused, match=r"golden case 1 of 2 .* answer.y is 1.5, expected 1: differs by 0.5"):
            services.wait("svc", timeout_s=60)
    finally:
        load.stop()
    assert load.failed == []
    assert set(load.answers) == {1.0, 2.0}
    status = services.status("svc")
    assert (status.step, status.phase) == (2, "degraded") and "golden" in status.reason
    services.stop("svc")
    # The run and its checkpoints are as before; of the service nothing is left.
    left = before | {"services", "submissions"}
    eventually(lambda: files_of(home) <= left, "the last process has given its ports back")


def test_a_server_that_was_written_after_the_training(services: LocalServices, tmp_path: Path) -> None:
    """The code of the run is served, unless that of now is asked for; a version keeps what the folder had then."""
    app = tmp_path / "project" / "later.py"
    app.write_text(APP)
    command = ("python", "later.py", "0")
    services.serve(ServiceRequest(run="train", name="svc", command=command))
    with pytest.raises(Refused, match="later.py"):
        services.wait("svc", timeout_s=60)
    explanation = explain_service(LocalEngine(services.home.root), "svc")
    assert explanation is not None and "--fresh-code" in explanation.next_steps[-1]
    services.serve(ServiceRequest(run="train", name="svc", command=command, fresh_code=True))
    app.unlink()
    assert services.wait("svc", timeout_s=60).ready == 2
    os.kill(get(services.status("svc").url)["pid"], signal.SIGKILL)
    eventually(lambda: "ended" in "".join(services.events("svc")), "killed")
    eventually(lambda: services.status("svc").ready == 2, "healed with the code that it was given")


def test_what_comes_after_a_failed_version_takes_nothing_of_it(services: LocalServices) -> None:
    services.serve(ServiceRequest(run="train", step=1, name="svc", command=GOOD, serve=Serve(ready="/", start_s=60)))
    url = services.wait("svc", timeout_s=60).url

    def fail() -> None:
        settings = Serve(ready="/nowhere", golden=False)
        services.serve(ServiceRequest(run="train", step=1, name="svc", command=("false",), serve=settings))
        with pytest.raises(Refused, match="3 starts failed"):
            services.wait("svc", timeout_s=60)
        assert get(url)["pid"] and services.settings("svc") == Serve(ready="/", start_s=60)

    fail()
    services.serve(ServiceRequest(run="train", name="svc", weight=50))
    status = services.wait("svc", timeout_s=60)
    assert (status.phase, status.step, status.canary) == ("ready", 1, "train:2")
    services.promote("svc")
    status = services.wait("svc", timeout_s=60)
    assert (status.phase, status.step, status.canary) == ("ready", 2, None)
    fail()
    services.serve(ServiceRequest(run="train", step=1, name="svc"))
    assert services.wait("svc", timeout_s=60).step == 1
    # A canary that fails takes nothing over, and goes without a word about it.
    services.serve(ServiceRequest(run="train", step=1, name="svc", command=BAD, weight=10))
    with pytest.raises(Refused, match="golden case 1 of 2"):
        services.wait("svc", timeout_s=60)
    with pytest.raises(Refused, match="golden case 1 of 2"):
        services.promote("svc")
    services.promote("svc", 0)
    assert services.wait("svc", timeout_s=60).phase == "ready"


LONG_TRAIN = """
import json, os, sys, time, longboat
for step in (1, 2, 3):
    while not os.path.exists(os.path.join(sys.argv[1], str(step))):
        time.sleep(0.05)
    with longboat.checkpoint(step) as folder:
        with open(os.path.join(folder, "model.json"), "w") as file:
            json.dump(step, file)
        wrong = 1 if step == 2 else 0  # of the second: its model answers otherwise
        longboat.golden([1], [{"y": step + wrong}])
"""


def test_a_service_that_follows_goes_on_to_new_checkpoints_and_past_a_bad_one(
    services: LocalServices, tmp_path: Path
) -> None:
    (tmp_path / "project" / "long.py").write_text(LONG_TRAIN)
    ready = tmp_path / "ready"
    ready.mkdir()
    role = Role(name="worker", run=("python", "long.py", str(ready)))
    job = Job(name="long", roles=(role,), ends=("worker",), checkpoints=Checkpoints())
    base = str(tmp_path / "project")
    services._engine.submit(Submission(job=job, base=base, environment=os.environ, run_id="long"))
    (ready / "1").touch()
    eventually(lambda: services._engine.status("long").checkpoint, "the first checkpoint")
    settings = Serve(replicas=2, ready="/", drain_s=20.0, follow="newest")
    services.serve(ServiceRequest(run="long", name="svc", command=GOOD, serve=settings))
    status = services.wait("svc", timeout_s=60)
    assert (status.step, status.follow) == (1, "newest")
    load = Load(status.url)

    def events() -> Sequence[str]:
        return services.events("svc")

    try:
        (ready / "2").touch()
        eventually(lambda: services.status("svc").phase == "degraded", "the bad one is refused", events)
        status = services.status("svc")
        assert status.step == 1 and status.reason.startswith("long:2 takes no requests: golden case 1 of 1")
        explained = explain_service(services._engine, "svc")
        assert explained is not None and "long:2 takes no requests: golden case" in explained.headline
        (ready / "3").touch()
        eventually(lambda: load.answers.get(3.0, 0) > 20, "the next one takes requests", events)
        assert services.wait("svc", timeout_s=60).step == 3
    finally:
        load.stop()
    assert load.failed == [] and set(load.answers) == {1.0, 3.0}
    # A step that somebody names stays.
    services.serve(ServiceRequest(run="long", step=1, name="svc"))
    status = services.wait("svc", timeout_s=60)
    assert (status.step, status.follow) == (1, None)


def test_a_service_that_follows_what_is_promoted_serves_nothing_else(services: LocalServices) -> None:
    request = ServiceRequest(run="train", name="svc", command=GOOD, serve=Serve(ready="/", follow="promoted"))
    with pytest.raises(NotFound, match="no checkpoint of train is promoted") as raised:
        services.serve(request)
    assert raised.value.hint == "longboat checkpoint promote train:STEP; or follow the newest: --follow"
    assert services.list() == []
    with services._engine.checkpoints("train") as place:
        promote(place, "train", "1")
    services.serve(request)
    status = services.wait("svc", timeout_s=60)
    assert (status.step, status.follow) == (1, "promoted")
    wanted = ServiceFolder(services.home, "svc").wanted()
    assert wanted is not None and [each.step for each in wanted.versions] == [1], "never the newer step 2"
    services.serve(ServiceRequest(run="train", name="svc", weight=10))
    wanted = ServiceFolder(services.home, "svc").wanted()
    assert wanted is not None and [each.step for each in wanted.versions] == [1, 2], "a canary tries it"


@pytest.mark.soak
def test_ten_replicas_over_updates_and_kills(services: LocalServices) -> None:
    """No request fails over several rolling updates of ten replicas, with replicas killed on the way."""
    serve = Serve(replicas=10, ready="/", drain_s=20.0)
    services.serve(ServiceRequest(run="train", step=1, name="svc", command=GOOD, serve=serve))
    url = services.wait("svc", timeout_s=300).url
    load = Load(url, clients=16)
    try:
        for step in (2, 1, 2):
            services.serve(ServiceRequest(run="train", step=step, name="svc"))
            for _ in range(3):
                os.kill(get(url)["pid"], signal.SIGKILL)
                time.sleep(1.0)
            assert services.wait("svc", timeout_s=300).ready == 10
    finally:
        load.stop()
    assert load.failed == [] and set(load.answers) == {1.0, 2.0}


def test_a_killed_supervisor_is_replaced_and_finds_its_replicas(services: LocalServices, home: Path) -> None:
    services.serve(ServiceRequest(run="train", name="svc", command=GOOD, serve=Serve(ready="/")))
    url = services.wait("svc", timeout_s=60).url
    pid = get(url)["pid"]
    supervisor = ServiceFolder(services.home, "svc").state().supervisor
    assert supervisor is not None
    os.kill(supervisor.pid, signal.SIGKILL)
    eventually(lambda: not ServiceFolder(services.home, "svc").is_supervised(), "still there")
    status = services.status("svc")
    assert status.url == url and get(url)["pid"] == pid  # the replica went on
    # Killed once more, and stopped by a command that finds nobody.
    supervisor = ServiceFolder(services.home, "svc").state().supervisor
    assert supervisor is not None
    os.kill(supervisor.pid, signal.SIGKILL)
    services.stop("svc")
    assert services.list() == []
    assert [run.name for run in services._engine.list()] == ["train"]
    with pytest.raises(NotFound):
        services.status("svc")


def test_a_server_that_ends_is_shown_with_its_last_words(services: LocalServices) -> None:
    command = ("python", "-c", "raise SystemExit('no such model')")
    services.serve(ServiceRequest(run="train", name="svc", command=command, serve=Serve()))
    with pytest.raises(Refused, match="3 starts failed; .* no such model"):
        services.wait("svc", timeout_s=60)
    assert services.status("svc").phase == "failed"
    assert services.status("svc").reason.count("no such model") == 1


REFUSED: list[tuple[ServiceRequest, type[Exception], str]] = [
    (ServiceRequest(run="nobody", command=GOOD), NotFound, "no run named"),
    (ServiceRequest(run="train", step=7, command=GOOD), NotFound, "no complete checkpoint of step 7"),
    (ServiceRequest(run="train"), UsageError, "no command"),
    (ServiceRequest(run="train", name="x" * 33, command=GOOD), UsageError, "too long"),
    (ServiceRequest(run="train", name="../x", command=GOOD), UsageError, "not a run name"),
    (ServiceRequest(run="train", command=GOOD, host="192.0.2.1"), UsageError, "cannot be listened on"),
    (ServiceRequest(run="train", name="new", command=GOOD, weight=5), NotFound, "no service named"),
]


def test_what_cannot_be_is_refused_and_leaves_nothing(services: LocalServices, home: Path) -> None:
    before = files_of(home) | {"services"}
    for request, error, words in REFUSED:
        with pytest.raises(error, match=words):
            services.serve(request)
    assert files_of(home) <= before
    assert services.list() == []


def test_what_a_killed_serve_left_goes_and_what_another_one_makes_stays(services: LocalServices, home: Path) -> None:
    fifo = home.parent / "slow"
    os.mkfifo(fifo)
    program = f"""
from longboat.core.jobs import Serve
from longboat.engines.local.engine import LocalEngine
from longboat.serving.local.services import LocalServices
from longboat.serving.requests import ServiceRequest
services = LocalServices(LocalEngine({str(home)!r}), lambda text: print(open({str(fifo)!r}).read()))
serve = Serve(ingress="a.example")
services.serve(ServiceRequest(run="train", name="slow", command=("true",), serve=serve))
"""
    maker = subprocess.Popen([sys.executable, "-c", program])
    try:
        with open(fifo, "w"):  # it has pinned its checkpoint, and tells something
            (draft,) = (home / "services").glob(".new-*")
            assert (draft / "versions" / "1" / "step-2" / "model.json").exists()
            os.utime(draft, (1, 1))
            remove_abandoned(home / "services")
            assert draft.exists(), "it is being made"
            maker.kill()
            maker.wait()
    finally:
        maker.kill()
        maker.wait()
    services._engine.delete("train")
    assert not draft.exists()

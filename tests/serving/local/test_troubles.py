"""Services that nobody looks after, or that have nothing to follow any more: what is said of them."""

from __future__ import annotations

import os
import signal
import threading
from urllib.parse import urlsplit

import pytest

from longboat.core.errors import ServiceDamaged
from longboat.core.jobs import Serve
from longboat.core.runs import LogQuery
from longboat.engines.local.supervise.processes import is_alive
from longboat.serving.local.listening import listen
from longboat.serving.local.records import ServiceFolder
from longboat.serving.local.services import LocalServices
from longboat.serving.requests import ServiceRequest
from tests.serving.local.test_services import GOOD, eventually, get
from tests.serving.local.test_services import services as services


def test_a_port_that_somebody_took_while_nobody_listened_is_told(
    services: LocalServices, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("longboat.serving.local.services.TAKE_OVER_S", 2.0)
    services.serve(ServiceRequest(run="train", name="svc", command=GOOD, serve=Serve(ready="/")))
    url = services.wait("svc", timeout_s=60).url
    supervisor = ServiceFolder(services.home, "svc").state().supervisor
    assert supervisor is not None
    os.kill(supervisor.pid, signal.SIGKILL)
    eventually(lambda: not ServiceFolder(services.home, "svc").is_supervised(), "still there")
    with listen("127.0.0.1", urlsplit(url).port or 0):
        status = services.status("svc")
        assert status.phase == "degraded" and "cannot be listened on: Address already in use" in status.reason
    eventually(lambda: services.status("svc").phase == "ready", "the port is free again")
    assert get(url)["pid"]


def test_a_service_that_cannot_follow_any_more_says_so(services: LocalServices) -> None:
    settings = Serve(ready="/", follow="newest")
    services.serve(ServiceRequest(run="train", name="svc", command=GOOD, serve=settings))
    services.wait("svc", timeout_s=60)
    services._engine.delete("train", purge=True)
    eventually(lambda: services.status("svc").reason, "its run is gone")
    status = services.status("svc")
    assert (status.phase, status.reason) == ("ready", "cannot follow: no run named 'train'")


@pytest.mark.parametrize("is_supervised", [True, False])
def test_a_service_whose_file_is_damaged_is_named_and_can_be_stopped(
    services: LocalServices, is_supervised: bool
) -> None:
    """It was hidden, and its processes went on with nobody who could end them."""
    services.serve(ServiceRequest(run="train", name="svc", command=GOOD, serve=Serve(ready="/")))
    services.wait("svc", timeout_s=60)
    folder = ServiceFolder(services.home, "svc")
    state = folder.state()
    assert state.supervisor is not None
    folder.wanted_file.write_text("{")
    if not is_supervised:
        os.kill(state.supervisor.pid, signal.SIGKILL)
        eventually(lambda: not folder.is_supervised(), "still there")
    notices: list[str] = []
    looking = LocalServices(services._engine, notices.append)
    assert looking.list() == []
    assert len(notices) == 1 and "the service svc is damaged" in notices[0] and "serve stop svc" in notices[0]
    with pytest.raises(ServiceDamaged, match="svc is damaged"):
        services.status("svc")
    services.stop("svc")
    assert notices[1:] == [] and looking.list() == [] and not folder.directory.exists()
    assert services.home.run_names() == ["train"]
    assert not is_alive(state.supervisor)


def test_following_the_log_of_a_service_ends_with_it(services: LocalServices) -> None:
    services.serve(ServiceRequest(run="train", name="svc", command=GOOD, serve=Serve(ready="/")))
    services.wait("svc", timeout_s=60)
    lines: list[bytes] = []

    def follow() -> None:
        lines.extend(line.data for line in services.logs("svc", LogQuery(follow=True)))

    reader = threading.Thread(target=follow, daemon=True)
    reader.start()
    services.stop("svc")
    reader.join(20)
    assert not reader.is_alive() and b"listens\n" in lines

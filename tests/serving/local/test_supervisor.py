"""The supervisor of a service in odd moments: killed while it drains or stops, no descriptors, another user's files."""

from __future__ import annotations

import asyncio
import os
import resource
import socket
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from longboat.core.errors import EngineError, SecretMissing, UsageError
from longboat.core.jobs import Job, Role, Secret, Serve
from longboat.core.runs import REPLICA_OF
from longboat.engines.engine import Submission
from longboat.engines.local.engine import LocalEngine
from longboat.engines.local.supervise.processes import identify
from longboat.engines.shared.home import Home
from longboat.serving.local import spawn
from longboat.serving.local.listening import checked_port
from longboat.serving.local.records import (
    ReplicaPhase,
    ReplicaState,
    ServiceFolder,
    ServiceState,
    Version,
    WantedService,
)
from longboat.serving.local.replicas import Replica, ReplicaRuns, clean_up, with_last_line
from longboat.serving.local.services import LocalServices
from longboat.serving.local.supervisor import ServiceSupervisor
from longboat.serving.requests import ServiceRequest


def made(home: Path, *replicas: ReplicaState, port: int = 0) -> ServiceFolder:
    """A service as its files are, without a supervisor."""
    job = Job(name="train", roles=(Role(name="worker", run=("true",)),), ends=("worker",))
    version = Version(number=1, run="train", step=None, checkpoint=None, command=("true",), job=job, base=str(home))
    wanted = WantedService(
        name="svc",
        uid="u1",
        created=1.0,
        user="me",
        host="127.0.0.1",
        port=port,
        serve=Serve(replicas=0),
        versions=(version,),
        current=1,
    )
    place = Home(home)
    place.prepare()
    folder = ServiceFolder(place, "svc")
    folder.directory.mkdir(parents=True)
    folder.write_wanted(wanted)
    folder.write_state(ServiceState(replicas=replicas))
    return folder


def replica(phase: ReplicaPhase, name: str = "svc-r1") -> ReplicaState:
    return ReplicaState(name=name, version=1, port=1, phase=phase)


def eventually(check: Callable[[], object], words: str) -> None:
    deadline = time.monotonic() + 60
    while not check():
        assert time.monotonic() < deadline, words
        time.sleep(0.05)


def test_a_replica_that_was_being_drained_is_ended_by_the_next_supervisor(home: Path) -> None:
    supervisor = ServiceSupervisor(made(home, replica("draining")))
    (drained,) = supervisor._replicas.values()

    async def turn() -> None:
        supervisor._finish_drains()
        assert drained.drain_until is None, "it is being stopped"
        await asyncio.wait(supervisor._tasks)

    asyncio.run(turn())
    # There is no such run, so that stopping it fails: it is tried again, not at once.
    assert drained.drain_until is not None and drained.stop_after > time.monotonic()
    asyncio.run(no_tasks(supervisor))


async def no_tasks(supervisor: ServiceSupervisor) -> None:
    supervisor._finish_drains()
    assert not supervisor._tasks


def test_only_replicas_that_were_ready_take_requests_when_none_is(home: Path) -> None:
    supervisor = ServiceSupervisor(made(home, replica("unready", "svc-r1"), replica("unready", "svc-r2")))
    supervisor._replicas["svc-r2"].was_ready = False
    supervisor._publish()
    assert set(supervisor.backends._ready) == {"svc-r1"}
    supervisor._replicas["svc-r1"].was_ready = False
    supervisor._publish()
    assert supervisor.backends._ready == {}


def test_a_replica_that_never_was_ready_is_ended_without_requests(home: Path) -> None:
    supervisor = ServiceSupervisor(made(home, replica("starting")))
    late = supervisor._replicas["svc-r1"]
    late.over = "not ready after 600 s"
    engine = LocalEngine(home)
    server = Role(name="server", run=("sleep", "600"))
    job = Job(name="svc-r1", roles=(server,), ends=("server",), workdir=None, grace_s=1.0)
    engine.submit(Submission(job=job, base=str(home), environment=os.environ, run_id="svc-r1"))

    async def turn() -> None:
        await supervisor._observe(late)
        if supervisor._tasks:
            await asyncio.wait(supervisor._tasks)

    asyncio.run(turn())
    assert late.phase == "starting"  # `unready` would be asked when nobody is ready, also by the next supervisor
    assert late.is_told and engine.wait("svc-r1").phase == "stopped"


def test_a_replica_of_a_trial_is_no_trial_and_what_was_rerun_of_it_no_replica(home: Path) -> None:
    supervisor = ServiceSupervisor(made(home))
    version = supervisor.wanted.version(1)
    labels = {"team": "a", "sweep": "lr", "trial": "1", "sweep-uid": "u2", REPLICA_OF: "of another"}
    job = msgspec.structs.replace(version.job, labels=labels, workdir=None)
    version = msgspec.structs.replace(version, job=job)
    supervisor._runs.start(Replica(replica("starting")), supervisor.wanted, version)
    engine = LocalEngine(home)
    (found,) = engine.list()
    assert (found.name, found.labels) == ("svc-r1", {"team": "a", REPLICA_OF: "u1"})
    engine.submit(msgspec.structs.replace(engine.resubmission("svc-r1"), run_id="mine"))  # as older ones were rerun
    for name in ("svc-r1", "mine"):
        engine.wait(name)
    assert supervisor._runs.of_service(supervisor.wanted) == ["svc-r1"]


def test_requests_of_drained_replicas_are_waited_for_at_the_end(home: Path) -> None:
    supervisor = ServiceSupervisor(made(home, replica("draining")))
    supervisor._publish()
    supervisor._replicas["svc-r1"].backend.in_flight = 2
    assert supervisor.backends.in_flight == 0 and supervisor._in_flight() == 2


def test_an_error_of_one_turn_does_not_end_the_service(home: Path) -> None:
    supervisor = ServiceSupervisor(made(home, replica("ready")))
    state = home / "runs" / "svc-r1" / "state.json"
    state.mkdir(parents=True)  # cannot be read as a file

    async def run() -> None:
        running = asyncio.ensure_future(supervisor.run())
        while "could not look after the replicas" not in supervisor.state.problem + supervisor._problem:
            assert not running.done()
            await asyncio.sleep(0.01)
        state.rmdir()
        while supervisor._replicas:  # now its end is noted
            assert not running.done()
            await asyncio.sleep(0.01)
        supervisor.folder.request_stop()
        await running

    asyncio.run(asyncio.wait_for(run(), 60))


def test_a_full_disk_ends_no_service(home: Path) -> None:
    folder = made(home, replica("ready"), port=checked_port("127.0.0.1", 0))
    folder.log.symlink_to("/dev/full")
    services = LocalServices(LocalEngine(home))
    assert services.status("svc").phase
    eventually(lambda: not folder.state().replicas, "it did not look after its replicas")  # and has said so
    services.scale("svc", 0, 3)
    assert folder.is_supervised()
    services.stop("svc")


def test_a_start_that_fails_gives_its_port_back(home: Path) -> None:
    supervisor = ServiceSupervisor(made(home))
    version = supervisor.wanted.version(1)
    job = msgspec.structs.replace(version.job, workdir="nowhere")
    supervisor.wanted = msgspec.structs.replace(
        supervisor.wanted, versions=(msgspec.structs.replace(version, job=job),)
    )
    asyncio.run(supervisor._start(1))
    assert "svc-r1 cannot be started" in supervisor._problem and not supervisor._replicas
    held = [os.readlink(f"/proc/self/fd/{number}") for number in os.listdir("/proc/self/fd") if is_open(number)]
    assert not [path for path in held if path.startswith(str(home / "ports"))]


def is_open(number: str) -> bool:
    return os.path.lexists(f"/proc/self/fd/{number}")


def test_a_service_whose_supervisor_was_killed_while_it_stopped_is_ended_by_the_next_command(home: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:  # nothing has to be listened on for that
        folder = made(home, port=taken.getsockname()[1])
        folder.request_stop()
        services = LocalServices(LocalEngine(home))
        with pytest.raises(UsageError, match="svc is being stopped"):
            services.scale("svc", 3, None)
        eventually(lambda: not folder.directory.exists(), "still there")
    assert services.list() == []


def test_a_look_goes_on_with_a_stop_too(home: Path) -> None:
    folder = made(home)
    folder.request_stop()
    services = LocalServices(LocalEngine(home))
    assert [status.phase for status in services.list()] == ["stopping"]
    eventually(lambda: services.list() == [], "still there")


def test_what_is_removed_is_the_service_that_was_meant(home: Path) -> None:
    folder = made(home)
    wanted = folder.wanted()
    assert wanted is not None
    runs = ReplicaRuns(Home(home), dict(os.environ))
    assert clean_up(folder, "before", runs)
    assert folder.directory.exists()
    assert clean_up(folder, wanted.uid, runs)
    assert not folder.directory.exists()


def test_a_service_of_another_user_is_only_looked_at(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = made(home)
    services = LocalServices(LocalEngine(home))
    uid = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: uid + 1)
    assert [status.name for status in services.list()] == ["svc"]
    assert not folder.log.exists() and not folder.lock.exists(), "a supervisor was started with our rights"
    for change in (
        lambda: services.scale("svc", 3, None),
        lambda: services.promote("svc"),
        lambda: services.stop("svc"),
        lambda: services._update("svc", ServiceRequest(run="train", name="svc")),
    ):
        with pytest.raises(UsageError, match="svc is a service of another user"):
            change()


def test_a_home_that_can_only_be_read_is_shown(home: Path) -> None:
    folder = made(home)
    folder.lock.mkdir()  # cannot be opened, as where the disk is read-only
    services = LocalServices(LocalEngine(home))
    (status,) = services.list()
    assert status.phase == "failed" and "none can be started: cannot open" in status.reason
    with pytest.raises(EngineError, match="svc: its supervisor was killed"):
        services.wait("svc")
    folder.write_state(ServiceState(supervisor=identify(os.getpid())))  # one lives
    assert services.status("svc").phase == "ready"


def with_secret(wanted: WantedService) -> WantedService:
    version = wanted.versions[0]
    job = msgspec.structs.replace(version.job, secrets=(Secret(name="SERVE_TOKEN"),))
    return msgspec.structs.replace(wanted, versions=(msgspec.structs.replace(version, job=job),))


def test_who_has_not_the_secrets_of_a_service_does_not_take_it_over(home: Path) -> None:
    folder = made(home, port=checked_port("127.0.0.1", 0))
    folder.write_wanted(with_secret(ServiceSupervisor(folder).wanted))
    (status,) = LocalServices(LocalEngine(home)).list()
    assert status.phase == "failed" and "secret SERVE_TOKEN is neither in the environment" in status.reason
    assert not folder.is_supervised()
    with pytest.raises(SecretMissing, match="SERVE_TOKEN") as caught:
        LocalServices(LocalEngine(home)).wait("svc")
    assert caught.value.exit_code == 202 and "longboat secret set" in (caught.value.hint or "")
    services = LocalServices(LocalEngine(home, environment={**os.environ, "SERVE_TOKEN": "abcdefgh"}))
    assert services.status("svc").phase == "ready" and folder.is_supervised()
    assert LocalServices(LocalEngine(home)).status("svc").phase == "ready"
    services.stop("svc")


def test_an_update_replaces_a_supervisor_that_lacks_its_secret(home: Path) -> None:
    folder = made(home, port=checked_port("127.0.0.1", 0))
    services = LocalServices(LocalEngine(home))
    services.status("svc")
    wanted = with_secret(ServiceSupervisor(folder).wanted)
    rich = {**os.environ, "SERVE_TOKEN": "abcdefgh"}
    spawn.leave_to_caller(folder, wanted, os.environ)
    assert folder.is_supervised(), "the caller does no better"
    spawn.leave_to_caller(folder, wanted, rich)
    assert not folder.is_supervised()
    assert spawn.supervise(folder, wanted, rich)
    assert services._await_proxy(folder)
    spawn.leave_to_caller(folder, wanted, rich)
    assert folder.is_supervised(), "it has the secret"
    services.stop("svc")


def test_a_canary_is_good_only_when_it_is_promoted(home: Path) -> None:
    canary = ReplicaState(name="svc-r2", version=2, port=2, phase="ready")
    supervisor = ServiceSupervisor(made(home, replica("ready"), canary))
    supervisor._note_ready(supervisor._replicas["svc-r2"])  # its user has ended it in this turn
    supervisor._publish()
    assert supervisor.state.good == 1
    first = supervisor.wanted.version(1)
    versions = (first, msgspec.structs.replace(first, number=2))
    supervisor.folder.write_wanted(msgspec.structs.replace(supervisor.wanted, versions=versions, current=2))
    supervisor._read_wanted()
    supervisor._publish()
    assert supervisor.state.good == 2


def test_a_host_that_cannot_be(home: Path) -> None:
    for host in ("\u00fc" * 70, "a\0b", "x" * 300, "\udcff"):
        with pytest.raises(UsageError, match="cannot be listened on"):
            checked_port(host, 0)
    with pytest.raises(UsageError, match="listens on port 0 of 127.0.0.1"):
        made(home)
        LocalServices(LocalEngine(home))._update("svc", ServiceRequest(run="train", name="svc", host="0.0.0.0"))


def test_the_limit_of_open_files_is_raised() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = spawn.MOST_FILES if before[1] == resource.RLIM_INFINITY else min(spawn.MOST_FILES, before[1])
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(512, most), before[1]))
    try:
        spawn.raise_file_limit()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (most, before[1])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.parametrize(
    ("lines", "shown"),
    [
        ([], "app: not found"),
        (["x", "longboat: app: not found"], "app: not found"),
        (["longboat: app: not found", "x"], "app: not found; x"),
    ],
)
def test_the_last_line_of_a_log_says_nothing_twice(lines: list[str], shown: str) -> None:
    assert with_last_line("app: not found", lines) == shown

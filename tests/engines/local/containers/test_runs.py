"""Runs in real containers: what only containers can get wrong. Promises of every engine are in tests/conformance."""

from __future__ import annotations

import io
import os
import re
import signal
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from longboat.core.runs import RunStatus
from longboat.engines.local.supervise.processes import descendants
from testbed.podman import Podman
from tests.conformance.places import PodmanPlace, open_local
from tests.engines.local.conftest import WAITS, LocalJobs

pytestmark = pytest.mark.podman


@pytest.fixture
def jobs(podman: Podman, tmp_path: Path) -> Iterator[LocalJobs]:
    place = PodmanPlace(tmp_path, podman)
    with open_local(tmp_path, place):
        yield LocalJobs(place, tmp_path)


def own_containers(podman: Podman, uid: str) -> list[str]:
    return [name for name in podman.containers() if uid in name]


def client_of(jobs: LocalJobs, run: str) -> int:
    """The pid of `podman run`."""
    below = descendants(jobs.supervisor(run).pid)
    return next(pid for pid in below if b"podman\0run\0" in Path(f"/proc/{pid}/cmdline").read_bytes())


def test_nobody_but_the_ranks_sees_a_secret(jobs: LocalJobs, podman: Podman) -> None:
    environment = {**jobs.place.environment, "TOKEN": "hunter2-secret"}
    started = jobs.submit(
        f"import os\nassert os.environ['TOKEN'].startswith('hunter2')\n{WAITS}",
        secrets=["TOKEN"],
        environment=environment,
    )
    run, uid = started.name, started.uid
    jobs.until_said(run, "ready")
    (container,) = own_containers(podman, uid)
    assert "hunter2" not in podman("inspect", container)
    shown = subprocess.run(["ps", "-ww", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert "hunter2" not in shown and container in shown
    jobs.let_go(run)
    assert jobs.wait(run).exit_code == 0
    assert own_containers(podman, uid) == []


@pytest.mark.parametrize("victim", ["supervisor", "client", "launcher"])
def test_whatever_is_killed_no_container_survives(jobs: LocalJobs, podman: Podman, victim: str) -> None:
    """And the run is tried again."""
    run = jobs.submit(WAITS, grace="1s", retries={"count": 1, "backoff": "0s"})
    jobs.until_said(run.name, "ready")
    (before,) = own_containers(podman, run.uid)
    pid = {
        "supervisor": lambda: jobs.supervisor(run.name).pid,
        "client": lambda: client_of(jobs, run.name),
        "launcher": lambda: jobs.launchers(run.name)[0].pid,
    }[victim]()
    os.kill(pid, signal.SIGKILL)
    jobs.until_said(run.name, "ready", times=2)
    assert before not in own_containers(podman, run.uid)
    jobs.let_go(run.name)
    ended = jobs.wait(run.name)
    assert (ended.phase, ended.attempt, ended.attempts[0].failure.cause) == ("succeeded", 1, "lost")  # type: ignore[union-attr]
    assert own_containers(podman, run.uid) == []


def failed(status: RunStatus) -> str:
    assert (status.phase, status.exit_code, status.cause) == ("failed", 209, "image"), status
    return status.reason


def test_images_that_cannot_be_used(jobs: LocalJobs, podman: Podman, tmp_path: Path) -> None:
    reason = failed(jobs.run("", image="localhost:1/no/such:image"))
    assert "image localhost:1/no/such:image: the registry localhost:1 cannot be reached" in reason
    empty = tmp_path / "empty.tar"
    with tarfile.open(empty, "w") as tar:
        tar.addfile(tarfile.TarInfo("file"), io.BytesIO(b""))
    podman("import", str(empty), "longboat.test/empty:latest")
    reason = failed(jobs.run("", image="longboat.test/empty:latest"))
    assert "image longboat.test/empty:latest has no python3" in reason


def test_roles_with_and_without_an_image_are_one_gang(jobs: LocalJobs) -> None:
    """A mark on the file system of this machine tells which of them sees it."""
    mark = jobs.root / "mark"
    mark.touch()
    code = f"import os; print(os.environ['LONGBOAT_ROLE'], os.path.exists({str(mark)!r}), os.getuid())"
    roles = {"inside": {"image": jobs.place.fields["image"]}, "outside": {"image": None}}
    ended = jobs.run(code, roles=roles, image=None)
    assert ended.exit_code == 0, ended.reason
    assert sorted(jobs.text(ended.name).splitlines()) == [f"inside False {os.getuid()}", f"outside True {os.getuid()}"]


def test_a_volume_is_at_its_absolute_target(jobs: LocalJobs) -> None:
    folder = jobs.root / "set"
    folder.mkdir()
    (folder / "here").write_text("found it")
    code = "print(open('/mnt/set/here').read()); open('/mnt/set/written', 'w').close()"
    ended = jobs.run(code, volumes={"/mnt/set": {"path": str(folder)}})
    assert (ended.exit_code, jobs.text(ended.name)) == (0, "found it\n"), ended.reason
    assert (folder / "written").stat().st_uid == os.getuid()
    image = jobs.place.fields["image"]
    assert re.fullmatch(rf"{re.escape(image)}@sha256:[0-9a-f]{{64}}", jobs.engine.status(ended.name).images["worker"])

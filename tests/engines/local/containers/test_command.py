"""The command of a node's container, as data."""

from __future__ import annotations

import msgspec
import pytest

from longboat.core.errors import EngineError
from longboat.engines.local.containers.command import (
    ContainerSpec,
    Mount,
    container_name,
    exec_command,
    mount_option,
    own_limits,
    start_command,
)

SPEC = ContainerSpec(
    program="podman",
    path="/usr/bin/podman",
    image="docker.io/library/python:3.12",
    name="job-feed-0-worker-0",
    run="job",
    uid="feed",
    user="0:0",
    mounts=(Mount(source="/home/me/run", target="/home/me/run"), Mount(source="/l", target="/t", read_only=True)),
    marks={"LONGBOAT_RUN_UID": "feed"},
)


def test_everything_but_the_files_is_that_of_this_machine() -> None:
    command = start_command(SPEC, "/home/me/run/plan.json")
    assert {"--network=host", "--pid=host", "--ipc=host", "--userns=host", "--user=0:0"} <= set(command)
    without = start_command(msgspec.structs.replace(SPEC, has_ipc=False), "/home/me/run/plan.json")
    assert set(command) - set(without) == {"--ipc=host"}
    assert {"--rm", "--pull=never", "--interactive", "--security-opt=label=disable"} <= set(command)


def test_a_container_says_whose_it_is() -> None:
    command = start_command(SPEC, "/plan.json")
    assert {"--label=longboat.dev/run=job", "--label=longboat.dev/uid=feed", "--env=LONGBOAT_RUN_UID=feed"} <= set(
        command
    )


def test_the_launcher_is_what_runs() -> None:
    command = start_command(SPEC, "/home/me/run/plan.json")
    at = command.index(SPEC.image)
    assert command[at - 1] == "--entrypoint=python3"
    assert command[at + 1 :] == ["-I", "-S", "/longboat/launcher.pyz", "--container", "/home/me/run/plan.json"]


def test_devices_only_when_asked_for() -> None:
    assert not [word for word in start_command(SPEC, "/p") if word.startswith("--device")]
    given = msgspec.structs.replace(SPEC, devices=("nvidia.com/gpu=GPU-1", "nvidia.com/gpu=2"))
    words = [word for word in start_command(given, "/p") if word.startswith("--device")]
    assert words == ["--device=nvidia.com/gpu=GPU-1", "--device=nvidia.com/gpu=2"]


def test_mounts() -> None:
    assert mount_option(SPEC.mounts[0]) == "type=bind,source=/home/me/run,target=/home/me/run"
    assert mount_option(SPEC.mounts[1]) == "type=bind,source=/l,target=/t,readonly"
    with pytest.raises(EngineError, match="comma"):
        mount_option(Mount(source="/a,readonly", target="/a"))


@pytest.mark.parametrize(
    ("nofile", "nproc", "most", "limits"),
    [
        (1024, 500, 32768, ("nofile=1024:1024", "nproc=500:500")),
        (20000, 96343, 32768, ("nofile=20000:20000", "nproc=32768:32768")),
        (-1, -1, 4194304, ("nofile=-1:-1", "nproc=4194304:4194304")),
    ],
)
def test_no_limit_is_raised(nofile: int, nproc: int, most: int, limits: tuple[str, ...]) -> None:
    assert own_limits({"nofile": nofile, "nproc": nproc}, most) == limits


def test_entering() -> None:
    name = container_name("job", "feed", 2, "worker-1")
    command = exec_command(
        "/usr/bin/docker", name, workdir="/w", variables=["A", "B=1"], command=["ls", "-l"], is_terminal=True
    )
    start = ["/usr/bin/docker", "exec", "--interactive", "--tty", "--workdir=/w", "--env=A", "--env=B=1"]
    assert command == [*start, "job-feed-2-worker-1", "ls", "-l"]
    quiet = exec_command("/d", name, workdir="/w", variables=[], command=["ls"], is_terminal=False)
    assert "--tty" not in quiet

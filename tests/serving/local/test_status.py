"""What `serve ls` says of a service, from what is wanted and what its supervisor wrote."""

from __future__ import annotations

import msgspec
import pytest

from longboat.core.jobs import DEFAULT_ROLE, Job, Role, Serve
from longboat.serving.local.records import ReplicaState, ServiceState, Version, WantedService
from longboat.serving.local.status import status_of

ROLE = Role(name=DEFAULT_ROLE, run="true")
VERSIONS = tuple(
    Version(
        number=number,
        run="train",
        step=10 * number,
        checkpoint=None,
        command="true",
        job=Job(name="train", roles=(ROLE,), ends=(DEFAULT_ROLE,)),
        base="/",
    )
    for number in (1, 2)
)
WANTED = WantedService(
    name="app",
    uid="u",
    created=0.0,
    user="me",
    host="127.0.0.1",
    port=80,
    serve=Serve(run="true", replicas=2),
    versions=VERSIONS,
    current=2,
)


def replicas(*phases: str) -> tuple[ReplicaState, ...]:
    """`1:ready`: a replica of version 1 that is ready; one that starts says why it is not."""
    pairs = [phase.split(":") for phase in phases]
    return tuple(
        ReplicaState(
            name=f"app-r{place}",
            version=int(version),
            port=place,
            phase=phase,  # type: ignore[arg-type]
            reason="loads" if phase == "starting" else "",
            in_flight=place,
        )
        for place, (version, phase) in enumerate(pairs)
    )


@pytest.mark.parametrize(
    ("phases", "failed", "phase", "reason", "step"),
    [
        (("2:starting", "2:starting"), {}, "starting", "loads", 20),
        (("2:ready", "2:ready"), {}, "ready", "", 20),
        (("2:ready", "2:starting"), {}, "degraded", "loads", 20),
        (("1:ready", "1:ready", "2:starting"), {}, "updating", "loads", 20),
        (("1:draining", "2:ready", "2:ready"), {}, "updating", "", 20),
        (("1:ready", "1:ready"), {2: "bad"}, "degraded", "train:20 takes no requests: bad", 10),
        ((), {2: "bad"}, "failed", "train:20 takes no requests: bad", 10),
    ],
)
def test_phases(phases: tuple[str, ...], failed: dict[int, str], phase: str, reason: str, step: int) -> None:
    state = ServiceState(replicas=replicas(*phases), good=1, failed=failed, problem="r1 ended" if failed else "")
    status = status_of(WANTED, state, is_stopping=False)
    assert (status.phase, status.reason, status.step, status.replicas) == (phase, reason, step, 2)
    assert status.ready == sum(each.endswith(":ready") for each in phases)
    assert status.in_flight == sum(range(len(phases)))
    assert status_of(WANTED, state, is_stopping=True).phase == "stopping"


def test_a_canary_that_is_bad_takes_no_requests_and_is_named() -> None:
    wanted = msgspec.structs.replace(WANTED, current=1, canary=2, weight=10)
    state = ServiceState(replicas=replicas("1:ready", "1:ready"), good=1, failed={2: "wrong answers"})
    status = status_of(wanted, state, is_stopping=False)
    assert (status.phase, status.canary, status.weight) == ("degraded", "train:20", 10)
    assert status.reason == "the canary takes no requests: wrong answers"


@pytest.mark.parametrize(
    ("host", "shown"),
    [("127.0.0.1", "127.0.0.1"), ("0.0.0.0", "127.0.0.1"), ("::", "[::1]"), ("fd00::1", "[fd00::1]")],
)
def test_the_url_can_be_asked_from_here(host: str, shown: str) -> None:
    wanted = msgspec.structs.replace(WANTED, host=host)
    assert status_of(wanted, ServiceState(), is_stopping=False).url == f"http://{shown}:80"

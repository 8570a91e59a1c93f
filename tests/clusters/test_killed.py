"""`up` is killed after each of its steps in turn, and the next one goes on; at the end `down` leaves nothing."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

import pytest

from tests.clusters.conftest import Lab


def kill_at(longboat: Lab, step: str, state: str, later: Sequence[str]) -> bool:
    """Kill `up` when the step is in this state; False: it was done already, and `up` was killed at one that is later.

    A script that was cut off may have come to its end on the host, so that nothing is left to be done for its step.
    """
    process = longboat.popen("cluster", "up", "-o", "json")
    assert process.stdout is not None
    event = {}
    for line in process.stdout:
        event = json.loads(line)
        if (event["step"], event["state"]) == (step, state) or event["step"] in later:
            process.kill()
            break
    process.communicate()
    return event.get("step") == step


def planned_steps(longboat: Lab) -> list[str]:
    plan = json.loads(longboat.popen("cluster", "up", "--dry-run", "-o", "json").communicate()[0])
    return [step["name"] for step in plan[0]["steps"]]


@pytest.mark.hosts
@pytest.mark.xdist_group("kubeadm")
@pytest.mark.slow
@pytest.mark.soak
def test_killed_at_every_step_it_goes_on_and_down_leaves_nothing(lab: Callable[..., Lab]) -> None:
    longboat = lab(1, "no-route", "swap")
    host = longboat.group.hosts[0]
    look = "cat /etc/fstab; dpkg-query -W; sudo nft list ruleset; ip route; cat /proc/swaps | wc -l"
    before = host.run(look)
    steps = planned_steps(longboat)
    assert steps[0] == "journal" and steps[-1] == "init" and len(steps) >= 8
    killed = []
    order = [*steps, "network"]
    for number, step in enumerate(order):
        for state in ("started", "done"):
            if kill_at(longboat, step, state, order[number + 1 :]):
                killed.append(f"{step} {state}")
        # Each was met when it had begun; when it is done, the host is a step further. A short one may have come to its
        # end by itself, after the command that was killed right before.
        assert f"{step} started" in killed or step not in planned_steps(longboat), killed
    assert len({each.split()[0] for each in killed}) >= len(order) - 2, killed
    assert "1 node is ready" in longboat("cluster", "up")
    assert "nothing to do" in longboat("cluster", "up")
    assert "nothing of it is left on 1 host" in longboat("cluster", "down", "--yes")
    assert host.run(look) == before
    assert host.run("sudo ls -d /var/lib/longboat /etc/kubernetes 2>/dev/null || true") == ""

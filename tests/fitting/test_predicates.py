"""Why a pod does not fit, in words; and the fast forms agree with the words."""

from __future__ import annotations

import pytest

from longboat.fitting.model.pods import Pod
from tests.fitting.bodies import (
    GPU,
    node,
    pod,
    reason,
)


@pytest.mark.parametrize(
    ("requests", "words"),
    [
        ({"cpu": "8"}, None),
        ({"cpu": "8001m"}, "needs 8.001 CPUs, 8 free"),
        ({"memory": "33Gi"}, "needs 33Gi of memory, 32Gi free"),
        ({GPU: "8"}, "needs 8 nvidia.com/gpu, 4 free"),
        ({"vpc.amazonaws.com/efa": "1"}, "needs 1 vpc.amazonaws.com/efa, the node has none"),
        ({"vpc.amazonaws.com/efa": "0"}, None),
        ({"cpu": "9", GPU: "5"}, "needs 9 CPUs, 8 free; needs 5 nvidia.com/gpu, 4 free"),
    ],
)
def test_amounts(requests: dict[str, str], words: str | None) -> None:
    assert reason(pod("p", requests), node("n", {GPU: "4"})) == words


def test_what_is_there_counts() -> None:
    shape = node("n", {GPU: "8", "pods": "3"})
    assert reason(pod("p", {GPU: "4"}), shape, pod("o", {GPU: "5"})) == "needs 4 nvidia.com/gpu, 3 free"
    full = reason(pod("p"), shape, pod("a"), pod("b"), pod("c"))
    assert full == "the node has no room for another pod (3 are there)"


def test_ports() -> None:
    def serving(name: str, port: int) -> Pod:
        container = {"name": "c", "ports": [{"containerPort": port, "hostPort": port}]}
        return pod(name, containers=[container])

    assert reason(serving("p", 80), node("n"), serving("o", 80)) == "port 80/TCP of the node is taken"
    assert reason(serving("p", 81), node("n"), serving("o", 80)) is None

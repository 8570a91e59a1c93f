"""From the gang file to the plan of one node, as data. Its agreement with the Layout is tested beside the engine."""

from __future__ import annotations

from typing import Any

import pytest

from longboat.launcher.node.plan import NodePlan
from longboat.launcher.pod.gang_file import GangError, matching, plan_of


def gang(**keys: Any) -> dict[str, Any]:
    nodes = [
        {"role": "ps", "index": 0, "address": "ps", "starter": "longboat", "env": {}, "ranks": [{"rank": 0}]},
        {
            "role": "worker",
            "index": 0,
            "address": "w0",
            "env": {"A": "node"},
            "ranks": [{"rank": 1, "env": {"B": "own"}}],
        },
        {"role": "worker", "index": 1, "address": "w1", "starter": "follower", "command": ["x"], "ranks": []},
    ]
    return {
        "version": 1,
        "plan": {
            "run": "r",
            "uid": "u",
            "attempt": 2,
            "grace_s": 7,
            "unset": ["TF_CONFIG", "PET_*"],
            "mpi": {"port": 5},
        },
        "roles": {"ps": {"command": "serve"}, "worker": {"command": "train", "env": {"A": "role", "C": "c"}}},
        "nodes": nodes,
        "rank_env": {"B": "all", "D": "d"},
        "deciding": ["worker"],
        "timeout_s": 60,
        **keys,
    }


def test_what_is_nearer_wins() -> None:
    plan = plan_of(gang(), "worker", 0, "/longboat", ["PATH", "TF_CONFIG", "PET_X", "PETS"])
    assert plan["env"] == {"A": "node", "C": "c"}
    assert plan["ranks"] == [{"rank": 1, "env": {"B": "own", "D": "d"}}]
    assert (plan["node"], plan["node_rank"], plan["command"]) == ("worker-0", 1, "train")
    assert plan["unset"] == ["TF_CONFIG", "PET_X"]
    assert plan["directory"] == "/longboat/node" and plan["workdir"] == "/longboat/node/work"
    assert plan["termination"] == "/dev/termination-log" and plan["mpi"] is None


def test_a_follower_decides_nothing() -> None:
    plan = NodePlan(plan_of(gang(), "worker", 1, "/longboat", []))
    assert plan.deciding == ["worker-0"] and plan.run_timeout_s == 60
    assert plan.command == ["x"] and plan.mpi == {"port": 5, "token_file": "/longboat/gang/token"}
    assert (plan.line_port, plan.line_lost_s, plan.wait_timeout_s) == (29499, 30.0, 600.0)
    assert [peer["node"] for peer in plan.peers] == ["ps-0", "worker-0", "worker-1"]


@pytest.mark.parametrize(
    ("given", "role", "words"),
    [
        (gang(version=2), "ps", "version 2"),
        (gang(), "chief", "chief-0 is not a node"),
        (gang(nodes=None), "ps", "cannot be used"),
        (gang(roles={}), "ps", "cannot be used"),
        ({}, "ps", "version"),
    ],
)
def test_what_cannot_be_used(given: dict[str, Any], role: str, words: str) -> None:
    with pytest.raises(GangError, match=words):
        plan_of(given, role, 0, "/longboat", [])


def test_matching() -> None:
    assert matching(["A", "AB", "B"], ["A*"]) == ["A", "AB"]
    assert matching(["A", "AB", "B"], ["A", "C"]) == ["A"]
    assert matching(["A"], []) == []

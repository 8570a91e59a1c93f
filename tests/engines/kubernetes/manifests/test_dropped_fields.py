from __future__ import annotations

from typing import Any

import pytest

from longboat.engines.kubernetes.manifests.dropped_fields import dropped_fields

SENT: dict[str, Any] = {
    "kind": "Job",
    "metadata": {"name": "x", "labels": {"a": "b"}},
    "spec": {
        "suspend": False,
        "backoffLimitPerIndex": 0,
        "template": {
            "spec": {
                "containers": [
                    {"name": "main", "command": ["a", "b"], "env": [{"name": "A", "value": ""}, {"name": "B"}]},
                ],
                "tolerations": [{"key": "k", "effect": "NoExecute"}, {"key": "k", "tolerationSeconds": 60}],
                "volumes": [{"name": "node", "emptyDir": {}}],
                "imagePullSecrets": [],
            }
        },
    },
}


def changed(path: list[str | int], value: Any = None) -> dict[str, Any]:
    """What was sent, with one thing removed, or put in its place."""
    import copy

    found = copy.deepcopy(SENT)
    place: Any = found
    for step in path[:-1]:
        place = place[step]
    if value is None:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return found


POD: list[str | int] = ["spec", "template", "spec"]


def test_nothing_is_missing_where_all_is_there() -> None:
    assert dropped_fields(SENT, SENT) == []


@pytest.mark.parametrize(
    ("returned", "names"),
    [
        (changed(["spec", "suspend"]), ["spec.suspend"]),
        (changed(["spec", "backoffLimitPerIndex"]), ["spec.backoffLimitPerIndex"]),
        (changed(["metadata", "labels", "a"]), ["metadata.labels.a"]),
        (changed(["metadata", "labels"]), ["metadata.labels"]),
        (changed([*POD, "containers", 0, "command"]), ["spec.template.spec.containers[main].command"]),
        (changed([*POD, "containers", 0, "command"], ["a"]), ["spec.template.spec.containers[main].command[b]"]),
        (changed([*POD, "containers", 0, "env", 1]), ["spec.template.spec.containers[main].env[B]"]),
        (changed([*POD, "volumes", 0, "emptyDir"]), ["spec.template.spec.volumes[node].emptyDir"]),
        (
            changed([*POD, "tolerations", 1, "tolerationSeconds"]),
            ["spec.template.spec.tolerations[k].tolerationSeconds"],
        ),
        (changed(["spec", "template"], "text"), ["spec.template"]),
        (changed([*POD, "containers"], {}), ["spec.template.spec.containers"]),
    ],
)
def test_what_is_missing_is_named(returned: dict[str, Any], names: list[str]) -> None:
    assert dropped_fields(SENT, returned) == names


@pytest.mark.parametrize(
    "returned",
    [
        changed([*POD, "containers", 0, "env", 0], {"name": "A"}),
        changed([*POD, "imagePullSecrets"]),
        changed(["metadata", "name"], "normalised"),
        changed([*POD, "containers"], [{"name": "injected"}, *SENT["spec"]["template"]["spec"]["containers"]]),
        changed([*POD, "dnsPolicy"], "added"),
    ],
)
def test_what_servers_add_normalise_or_leave_out_because_it_is_empty_is_no_loss(returned: dict[str, Any]) -> None:
    assert dropped_fields(SENT, returned) == []

"""What `up` does on Azure, and what differs from the file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from longboat.clusters.cloud.azure.aks_view import AksView, read_aks
from longboat.clusters.cloud.azure.decide import (
    DIGEST_TAG,
    SPOT_TAINT,
    DeploymentView,
    GroupView,
    decide_up,
    digest_of,
    drift,
    parameters_of,
    removed_pools,
)
from longboat.clusters.cloud.azure.template import make_template, parameter_values
from longboat.clusters.cloud.spec import CloudSpec
from longboat.core.errors import LongboatError
from tests.clusters.cloud.azure.test_template import FILE, filled, spec_of

DONE = DeploymentView(state="Succeeded")


@pytest.fixture
def spec(tmp_path: Path) -> CloudSpec:
    return spec_of(FILE, tmp_path)


def view_of(spec: CloudSpec) -> AksView:
    """The cluster as AKS shows it after the template was deployed."""
    (body,) = filled(make_template("lab", spec)["resources"], parameter_values(spec))
    body["properties"] |= {"currentKubernetesVersion": f"{spec.version}.4", "provisioningState": "Succeeded"}
    for pool in body["properties"]["agentPoolProfiles"]:
        if pool.get("scaleSetPriority") == "Spot":
            pool["nodeTaints"] = [*pool.get("nodeTaints", ()), SPOT_TAINT]  # AKS's own
    return read_aks(body)


def group_of(spec: CloudSpec, **more: Any) -> GroupView:
    return GroupView(state="Succeeded", tags={"longboat-cluster": "lab", DIGEST_TAG: digest_of("lab", spec), **more})


def test_what_was_deployed_is_as_the_file_says(spec: CloudSpec) -> None:
    view = view_of(spec)
    assert drift(spec, view) == [] and removed_pools(spec, view) == []
    assert decide_up("lab", spec, group_of(spec), DONE, view) == "nothing"


def test_when_it_is_deployed_and_when_followed(spec: CloudSpec) -> None:
    view = view_of(spec)
    assert decide_up("lab", spec, None, None, None) == "deploy"
    assert decide_up("lab", spec, group_of(spec), DeploymentView(state="Running"), None) == "follow"
    assert decide_up("lab", spec, group_of(spec), DeploymentView(state="Failed"), view) == "deploy"
    assert decide_up("lab", spec, group_of(spec, **{DIGEST_TAG: "x"}), DONE, view) == "deploy"
    assert decide_up("lab", spec, group_of(spec), DONE, None) == "deploy", "somebody has deleted the cluster"
    assert decide_up("lab", spec, group_of(spec), DONE, msgspec.structs.replace(view, pools=())) == "deploy"


@pytest.mark.parametrize(
    ("group", "words"),
    [
        (GroupView(state="Succeeded"), "not of the cluster lab"),
        (GroupView(state="Deleting", tags={"longboat-cluster": "lab"}), "being taken down"),
    ],
)
def test_groups_that_cannot_be_used(spec: CloudSpec, group: GroupView, words: str) -> None:
    with pytest.raises(LongboatError, match=words):
        decide_up("lab", spec, group, DONE, None)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"count": 5}, "system: count: 5, the file has 2"),
        ({"type": "Standard_D8s_v5"}, "system: type: Standard_D8s_v5, the file has Standard_D4s_v5"),
        ({"min": 1, "max": 9}, "system: range: (1, 9), the file has (0, 0)"),
        ({"taints": ("a=b:NoSchedule",)}, "system: taints: ('a=b:NoSchedule',), the file has ()"),
        ({"name": "other"}, "the pool other is not in the file"),
    ],
)
def test_differences(spec: CloudSpec, change: dict[str, Any], words: str) -> None:
    view = view_of(spec)
    pools = [msgspec.structs.replace(pool, **change) if pool.name == "system" else pool for pool in view.pools]
    assert words in drift(spec, msgspec.structs.replace(view, pools=tuple(pools)))


def test_differences_of_the_cluster(spec: CloudSpec) -> None:
    view = msgspec.structs.replace(view_of(spec), version="1.3.5", access=("0.0.0.0/0",))
    first, second = drift(spec, view)
    assert first == f"Kubernetes is 1.3.5, the file has {spec.version}" and "reached from 0.0.0.0/0" in second


def test_only_pools_that_longboat_made_are_removed(spec: CloudSpec) -> None:
    view = view_of(spec)
    old = msgspec.structs.replace(view.pools[0], name="old", labels={"longboat.dev/pool": "old"})
    theirs = msgspec.structs.replace(old, name="theirs")
    view = msgspec.structs.replace(view, pools=(*view.pools, old, theirs))
    assert removed_pools(spec, view) == ["old"] and removed_pools(spec, None) == []


@pytest.mark.parametrize(("has", "kept"), [(3, 3), (9, 4), (0, 0)])
def test_a_pool_with_a_range_keeps_its_machines(spec: CloudSpec, has: int, kept: int) -> None:
    view = view_of(spec)
    pools = tuple(msgspec.structs.replace(pool, count=has) for pool in view.pools)
    values = parameters_of(spec, msgspec.structs.replace(view, pools=pools))
    assert (values["gpuCount"], values["systemCount"]) == (kept, 2)

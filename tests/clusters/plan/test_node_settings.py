"""Labels and taints: what differs from the file is set, what left the file leaves the node, what others set stays."""

from __future__ import annotations

from typing import Any

import msgspec

from longboat.clusters.plan.network import NodeView
from longboat.clusters.plan.node_settings import ANNOTATION, commands
from longboat.fitting.model.nodes import Taint
from tests.clusters.worlds import cluster


def calls(node: dict[str, Any], **host: Any) -> list[list[str]]:
    spec = cluster(workers=0)
    spec = msgspec.structs.replace(spec, hosts=(msgspec.structs.replace(spec.hosts[0], **host),))
    return commands(spec, [NodeView(name="cp-0", address="10.0.0.1", pods="", is_ready=True, **node)])


def test_nothing_wanted_is_nothing_to_do() -> None:
    assert calls({"labels": (("theirs", "1"),), "taints": ("their=x:NoSchedule",)}) == []


def test_a_label_is_set_and_remembered() -> None:
    assert calls({}, labels=(("team", "vision"),)) == [
        ["label", "node", "cp-0", "--overwrite", "team=vision"],
        ["annotate", "node", "cp-0", "--overwrite", f"{ANNOTATION}=label:team"],
    ]


def test_a_second_time_nothing_is_called() -> None:
    node = {"labels": (("team", "vision"),), "taints": ("gpu=:NoSchedule",), "settings": "label:team,taint:gpu"}
    assert calls(node, labels=(("team", "vision"),), taints=(Taint(key="gpu", effect="NoSchedule"),)) == []


def test_what_left_the_file_leaves_the_node_and_others_stay() -> None:
    node = {"labels": (("team", "vision"), ("theirs", "1")), "settings": "label:team,taint:gpu"}
    assert calls(node) == [
        ["label", "node", "cp-0", "--overwrite", "team-"],
        ["taint", "node", "cp-0", "--overwrite", "gpu-"],
        ["annotate", "node", "cp-0", "--overwrite", f"{ANNOTATION}-"],
    ]


def test_a_node_cannot_put_options_into_the_call() -> None:
    assert calls({"settings": "label:--kubeconfig=/tmp/x,taint:-A,other"}) == [
        ["annotate", "node", "cp-0", "--overwrite", f"{ANNOTATION}-"]
    ]


def test_another_value_overwrites() -> None:
    node = {"labels": (("team", "old"),), "settings": "label:team"}
    assert calls(node, labels=(("team", "new"),)) == [["label", "node", "cp-0", "--overwrite", "team=new"]]


def test_a_mark_of_an_upgrade_on_a_node_that_its_owner_uncordoned_goes() -> None:
    assert calls({"upgrading": "1.36.4"}) == [["annotate", "node", "cp-0", "longboat.dev/upgrading-"]]
    assert calls({"upgrading": "1.36.4", "is_cordoned": True}) == []

"""What is done for an add-on: new, changed, somebody else's, nothing."""

from __future__ import annotations

import copy
from typing import Any

from longboat.clusters.addons.addon import AddonManifest, Object, labelled, object_key
from longboat.clusters.addons.decide import decide, installed_version
from longboat.clusters.spec import ADDON_LABEL

SPACE: Object = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "jobset-system"}}
CONFIG: Object = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "config", "namespace": "jobset-system"},
    "data": {"a": "1"},
}
MANIFEST = AddonManifest("jobset", labelled([SPACE, CONFIG], "jobset"), "0.12.0")


def deployment(image: str, **labels: str) -> Object:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "manager", "namespace": "jobset-system", "labels": labels},
        "spec": {"template": {"spec": {"containers": [{"name": "m", "image": image}]}}},
    }


def stored(body: Object, **meta: Any) -> Object:
    kept = copy.deepcopy(body)
    kept["metadata"] |= {"resourceVersion": "1", "uid": "u", "managedFields": [], **meta}
    return kept


def by_key(*bodies: Object) -> dict[tuple[str, str, str], Object]:
    return {object_key(body): body for body in bodies}


def test_an_empty_cluster_gets_everything_in_order_with_our_label() -> None:
    plan = decide(MANIFEST, {}, {})
    assert plan.state == "install" and [body["kind"] for body in plan.apply] == ["Namespace", "ConfigMap"]
    assert all(body["metadata"]["labels"][ADDON_LABEL] == "jobset" for body in plan.apply)
    assert plan.line == "jobset 0.12.0: install, 2 objects"


def test_what_is_there_as_wanted_is_left() -> None:
    """A write alone changes resourceVersion, generation, managedFields."""
    present = by_key(*(stored(body) for body in MANIFEST.objects))
    applied = by_key(*(stored(body, resourceVersion="2", managedFields=[1]) for body in MANIFEST.objects))
    plan = decide(MANIFEST, present, applied, list(present.values()))
    assert plan.state == "same" and plan.line == "jobset 0.12.0: nothing to do" and not plan.apply and not plan.prune


def test_only_what_differs_is_applied_and_what_is_wanted_no_more_is_removed() -> None:
    space, config = (stored(body) for body in MANIFEST.objects)
    drifted = {**config, "data": {"a": "2"}}
    old = stored(labelled([{**CONFIG, "metadata": {**CONFIG["metadata"], "name": "old"}}], "jobset")[0])
    plan = decide(MANIFEST, by_key(space, drifted), by_key(space, config), [space, drifted, old])
    assert plan.state == "change" and [body["kind"] for body in plan.apply] == ["ConfigMap"]
    assert [body["metadata"]["name"] for body in plan.prune] == ["old"]
    assert plan.line == "jobset 0.12.0: change, 1 object to apply, 1 object to remove"


def test_an_installation_that_was_cut_off_goes_on() -> None:
    space = stored(MANIFEST.objects[0])
    plan = decide(MANIFEST, by_key(space), by_key(space), [space])
    assert [body["kind"] for body in plan.apply] == ["ConfigMap"]


def test_somebody_elses_is_left_alone_and_its_version_told() -> None:
    def reason(image: str) -> str:
        own = deployment(image)
        manifest = AddonManifest("jobset", labelled([CONFIG, deployment("x")], "jobset"), "0.12.0")
        plan = decide(manifest, by_key(stored(own)), by_key(stored(own)))
        assert plan.state == "foreign" and not plan.apply
        return plan.line

    assert reason("r/jobset:v0.12.0") == "jobset: 0.12.0 is there already; not made by up, left alone"
    assert reason("r/jobset:v0.9.0@sha256:00") == (
        "jobset: 0.9.0 is there already, 0.12.0 is what Longboat is tested with; not made by up, left alone"
    )
    assert reason("r:5000/jobset:latest") == (
        "jobset: is there already (Deployment jobset-system/manager); not made by up, left alone"
    )


def test_a_namespace_of_somebody_else_is_used_and_stays_his() -> None:
    """It gets no label: `down` would delete it with all that is in it."""
    plan = decide(MANIFEST, by_key(stored(SPACE)), by_key(stored(SPACE)))
    assert plan.state == "install" and [body["kind"] for body in plan.apply] == ["ConfigMap"]


def test_an_omitted_addon_says_why() -> None:
    plan = decide(AddonManifest("controller", omitted="no image"), {}, {})
    assert plan.state == "omitted" and plan.line == "controller: no image"


def test_the_version_is_that_of_the_image() -> None:
    assert installed_version([CONFIG, deployment("a/b:v1.2.3")]) == "1.2.3"
    assert installed_version([deployment("a/b"), CONFIG]) == ""


def test_what_may_hold_things_of_users_is_never_pruned_and_told() -> None:
    """A manifest without its definitions, or with another namespace, must not delete all JobSets of a cluster."""
    space, config = (stored(body) for body in MANIFEST.objects)
    name = {"metadata": {"name": "jobsets.jobset.x-k8s.io"}}
    definition = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", **name}
    earlier = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "earlier"}}
    old = {**CONFIG, "metadata": {**CONFIG["metadata"], "name": "old"}}
    rest = [stored(body) for body in labelled([definition, earlier, old], "jobset")]
    present = by_key(space, config)
    plan = decide(MANIFEST, present, present, [space, config, *rest])
    assert [body["metadata"]["name"] for body in plan.prune] == ["old"]
    text = "; left, though wanted no more: CustomResourceDefinition jobsets.jobset.x-k8s.io, Namespace earlier"
    assert plan.line == f"jobset 0.12.0: change, 1 object to remove{text}"
    same = decide(MANIFEST, present, present, [space, config, *rest[:2]])
    assert same.state == "same" and same.line == f"jobset 0.12.0: nothing to do{text}"

"""What each add-on is made of."""

from __future__ import annotations

import pytest

from longboat.clusters.addons.addon import AddonInputs, PoolsText, object_key
from longboat.clusters.addons.catalog import MAKERS, make_addon
from longboat.clusters.addons.install import in_order
from longboat.clusters.addons.manifest_files import REMOVABLE
from longboat.clusters.spec import ADDON_LABEL, Addon
from longboat.core.errors import EngineError
from tests.clusters.worlds import cluster

IMAGE = "registry.example.org/longboat:1"
OWN: tuple[Addon, ...] = ("controller", "autoscaler", "storage", "metrics")
INPUTS = AddonInputs(cluster(image=IMAGE, addons=OWN), pools=PoolsText(text="pools: []", simulates=True))


@pytest.mark.parametrize("name", OWN)
def test_every_object_has_the_label_and_can_be_removed_again(name: Addon) -> None:
    objects = make_addon(name, INPUTS).objects
    assert objects and all(body["metadata"]["labels"][ADDON_LABEL] == name for body in objects)
    assert {body["kind"] for body in objects} <= {kind.kind for kind in REMOVABLE}
    assert len({object_key(body) for body in objects}) == len(objects)


def test_no_two_addons_have_the_same_object() -> None:
    keys = [object_key(body) for name in OWN for body in make_addon(name, INPUTS).objects]
    assert len(set(keys)) == len(keys)


def test_kueue_comes_last_whatever_the_file_says() -> None:
    """Until it answers, its webhooks refuse what others create."""
    assert in_order(("kueue", "controller", "jobset")) == ["controller", "jobset", "kueue"]
    assert list(MAKERS)[-1] == "kueue"


def test_the_autoscaler_alone_brings_its_namespace() -> None:
    alone = AddonInputs(cluster(image=IMAGE, addons=("autoscaler",)), pools=INPUTS.pools)
    assert make_addon("autoscaler", alone).objects[0]["kind"] == "Namespace"
    assert make_addon("autoscaler", INPUTS).objects[0]["kind"] != "Namespace"


def test_a_controller_without_an_image_is_left_out_and_said() -> None:
    manifest = make_addon("controller", AddonInputs(cluster()))
    assert not manifest.objects and "names no image that has Longboat" in manifest.omitted


@pytest.mark.parametrize("name", ["autoscaler", "storage"])
def test_others_fail_without_it(name: Addon) -> None:
    with pytest.raises(EngineError, match="image"):
        make_addon(name, AddonInputs(cluster()))

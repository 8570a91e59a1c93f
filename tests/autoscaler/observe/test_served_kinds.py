"""Kinds that a cluster need not serve: followed in the version that it has, and where they may be seen."""

from __future__ import annotations

from pathlib import Path

from longboat.autoscaler.observe.watch import WHERE_ALLOWED, listed, served
from tests.engines.kubernetes.wire import Wire, listening

PLURALS = tuple(kind.plural for kind in WHERE_ALLOWED)


def serve(wire: Wire, *versions: str) -> None:
    wire.groups = {"resource.k8s.io": versions}
    wire.plurals = {f"resource.k8s.io/{version}": PLURALS for version in versions}


def test_device_claims_are_read_in_the_version_that_is_served(tmp_path: Path) -> None:
    with listening(tmp_path) as (client, wire):
        assert served(client) == []
        serve(wire, "v1beta1")
        assert {kind.api_version for kind in served(client)} == {"resource.k8s.io/v1beta1"}
        serve(wire, "v1beta1", "v1")
        assert served(client) == list(WHERE_ALLOWED)


def test_without_the_right_to_see_them_everything_else_is_seen(tmp_path: Path) -> None:
    with listening(tmp_path) as (client, wire):
        serve(wire, "v1")
        wire.forbidden = set(PLURALS)
        assert served(client) == []
        objects = listed(client)
        assert "Node" in objects and "ResourceSlice" not in objects
        wire.forbidden = set()  # they were granted since
        assert "ResourceSlice" in listed(client)


def test_those_that_are_followed_are_not_asked_for_again(tmp_path: Path) -> None:
    with listening(tmp_path) as (client, wire):
        serve(wire, "v1")
        wire.forbidden = set(PLURALS)
        assert served(client, set(WHERE_ALLOWED)) == list(WHERE_ALLOWED)

"""Where claims bind a pod to."""

from __future__ import annotations

from longboat.fitting.model.pods import shape_of
from longboat.fitting.model.volumes import claims_of
from tests.fitting.bodies import pod_body, wants


def test_volumes_bind_to_where_they_are() -> None:
    required = {"nodeSelectorTerms": [{"matchExpressions": [wants("zone", "In", "a")]}]}
    volumes = [
        {"metadata": {"name": "pv"}, "spec": {"nodeAffinity": {"required": required}}},
        {"metadata": {"name": "old", "labels": {"topology.kubernetes.io/zone": "a__b"}}, "spec": {}},
        {"metadata": {"name": "free"}, "spec": {}},
    ]
    claims = [
        {"metadata": {"name": name, "namespace": "default"}, "spec": {"volumeName": bound}}
        for name, bound in (("data", "pv"), ("legacy", "old"), ("nfs", "free"), ("unbound", ""))
    ]
    known = claims_of(claims, volumes)
    assert set(known) == {("default", "data"), ("default", "legacy")}

    def bound(*names: str) -> dict[str, object]:
        mounts = [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in names]
        return dict(shape_of(pod_body("p", volumes=mounts), known).placing.volumes)

    assert bound("data", "nfs", "unbound", "missing") == {"data": ((("zone", "In", ("a",)),),)}
    assert set(bound("legacy")) == {"legacy"}
    own = pod_body("p", volumes=[{"name": "scratch", "ephemeral": {}}])
    assert shape_of(own, {("default", "p-scratch"): known["default", "data"]}).placing.volumes

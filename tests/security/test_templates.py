"""What vouches for a later attempt stays what it was: the server refuses to change the hash in a stored template."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path

import pytest

from longboat.engines.kubernetes import names
from longboat.engines.kubernetes.manifests.retry_template import PIN, pins_of
from longboat.kubeapi.errors import ApiError
from longboat.kubeapi.kinds import JOB
from testbed.clusters import Cluster
from tests.engines.kubernetes.benches import Bench

pytestmark = pytest.mark.cluster


def test_the_hash_in_a_template_cannot_be_changed(
    cluster: Cluster, namespace: str, kwok_nodes: Callable[..., list[str]], tmp_path: Path
) -> None:
    """By an administrator: who may do less can do no more."""
    kwok_nodes("1:cpu")
    bench = Bench(cluster, namespace, tmp_path / "bench")
    try:
        bench.engine.submit(bench.submission("", name="train", retries=2))
        client = bench.engine.client
        (listed,) = client.list(JOB, labels=f"{names.KIND}=template").items
        held = listed | {"apiVersion": JOB.api_version, "kind": JOB.kind}
        (pin,) = pins_of(held)
        held["metadata"].pop("resourceVersion")  # controllers write its status meanwhile
        changed = copy.deepcopy(held)
        variables = changed["spec"]["template"]["spec"]["containers"][0]["env"]
        next(variable for variable in variables if variable["name"] == PIN)["value"] = "0" * len(pin)
        image = copy.deepcopy(held)
        image["spec"]["template"]["spec"]["containers"][0]["image"] = "evil"
        for body in (changed, image):
            with pytest.raises(ApiError, match="spec.template"):
                client.replace(body)
        with pytest.raises(ApiError, match="spec.template"):
            client.patch(JOB, held["metadata"]["name"], {"spec": {"template": {"spec": {"containers": []}}}})
        assert pins_of(client.get(JOB, held["metadata"]["name"])) == {pin}
    finally:
        bench.close()

"""`longboat volume create NAME --efs`: moto plays AWS; the API server that binds volume and claim is real."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from longboat.clusters.cloud.aws.efs.file_system import mount_targets
from longboat.engines.kubernetes.exec.static_volumes import volume_name
from longboat.kubeapi.client import Client
from longboat.kubeapi.kinds import NODE, PVC, VOLUME
from testbed.clusters import Cluster
from tests.cli.conftest import Longboat
from tests.clouds.aws.moto_cluster import REGION, ZONES, MotoCluster
from tests.engines.kubernetes.benches import Bench

pytestmark = pytest.mark.cluster


def test_from_nodes_to_a_bound_claim(
    cluster: Cluster,
    namespace: str,
    kwok_nodes: Callable[..., list[str]],
    moto: MotoCluster,
    home: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig))
    longboat = Longboat(tmp_path)
    longboat.environment = dict(os.environ)
    create = ("volume", "create", "data", "-n", namespace)
    assert "no node of this cluster is a machine of AWS" in longboat(*create, "--efs", code=None).err
    bench = Bench(cluster, namespace, tmp_path / "bench")
    client: Client = bench.engine.client
    _, machine = moto.machine(ZONES[0], is_of_eks=True)
    (node,) = kwok_nodes("1:cpu=4,memory=8Gi")
    client.patch(NODE, node, {"spec": {"providerID": f"aws:///{ZONES[0]}/{machine}"}})

    missing = longboat(*create, "--efs", "fs-0123456789abcdef0", code=None)
    assert f"error: EFS has no file system fs-0123456789abcdef0 in {REGION}" in missing.err
    assert client.find(PVC, "data") is None

    done = longboat(*create, "--efs", "--size", "750Gi")
    assert done.out == "data\n"
    volume = client.get(VOLUME, volume_name(namespace, "data"))
    server = volume["spec"]["nfs"]["server"]
    id = server.partition(".")[0]
    assert server == f"{id}.efs.{REGION}.amazonaws.com" and f"longboat: {id}: made" in done.err
    assert volume["spec"]["persistentVolumeReclaimPolicy"] == "Retain"
    claim = client.get(PVC, "data")
    assert claim["status"]["phase"] == "Bound" and claim["spec"]["accessModes"] == ["ReadWriteMany"]
    assert sorted(target.zone for target in mount_targets(moto.session, id)) == list(ZONES)
    again = longboat(*create, "--efs", "--size", "750Gi")
    assert again.out == "data\n" and f"{id}: was made before, and is used" in again.err

    gone = longboat("volume", "rm", "data", "-n", namespace, "--yes")
    assert f"what is in it stays, in {server}:/" in gone.err
    assert client.find(VOLUME, volume_name(namespace, "data")) is None
    longboat(*create, "--efs", id)
    assert client.get(PVC, "data")["status"]["phase"] == "Bound"
    longboat("volume", "rm", "data", "-n", namespace, "--yes")
    bench.engine.close()

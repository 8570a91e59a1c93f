"""A simulated Azure in the environment of a test, with a cluster file for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from longboat.clouds import rest
from longboat.clusters.cloud.azure import resource_group
from tests.clouds.azure.simulated_aks import SimulatedAks
from tests.storage.realstores import Unavailable

FILE = """
name: lab
kind: azure
region: westeurope
addons: []
pools:
- {name: system, type: Standard_D4s_v5, count: 2}
- {name: gpu, type: Standard_NC4as_T4_v3, min: 0, max: 4, zones: ["1"], labels: {a: b}, taints: ["x=y:NoSchedule"]}
tags: {team: vision}
"""


@pytest.fixture
def azure(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SimulatedAks]:
    pytest.importorskip("azure.identity")
    try:
        simulated = SimulatedAks()
    except Unavailable as reason:
        pytest.skip(str(reason))
    monkeypatch.setattr(resource_group, "LOOKS_S", (0.0,))
    monkeypatch.setattr(rest, "PAUSES_S", (0.0, 0.0))
    for name in ("AZURE_SUBSCRIPTION_ID", "AZURE_CLIENT_ID", "AZURE_CLIENT_SECRET", "AZURE_TENANT_ID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cluster.yaml").write_text(FILE)
    with simulated:
        monkeypatch.setenv("AZURE_RESOURCE_MANAGER_ENDPOINT", simulated.url)
        monkeypatch.setenv("IDENTITY_ENDPOINT", f"{simulated.url}/identity")
        monkeypatch.setenv("IDENTITY_HEADER", "simulated")
        yield simulated
    assert simulated.violations == []

"""A simulated Google Cloud in the environment of a test, with a cluster file for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from longboat.cli.cluster.cloud import gcp as gcp_command
from longboat.clouds import rest
from longboat.clusters.cloud.gcp import autoscaler_rights, gke, leftovers
from tests.clouds.gcp.simulated_gke import SimulatedGke
from tests.clouds.gcp.simulated_google import TYPES, use_google
from tests.storage.realstores import Unavailable

FILE = """
name: lab
kind: gcp
region: us-central1
network: {access: [192.0.2.0/24]}
addons: []
pools:
- {name: cpu, type: e2-standard-4, count: 2}
- {name: gpu, type: g2-standard-8, min: 0, max: 4, labels: {a: b}, taints: ["x=y:NoSchedule"]}
tags: {team: vision}
"""


@pytest.fixture
def google(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SimulatedGke]:
    pytest.importorskip("google.auth")
    try:
        simulated = SimulatedGke()
    except Unavailable as reason:
        pytest.skip(str(reason))
    monkeypatch.setattr(gke, "LOOKS_S", (0.0,))
    monkeypatch.setattr(rest, "PAUSES_S", (0.0, 0.0))
    monkeypatch.setattr(leftovers, "SETTLE_S", (0.0,))
    monkeypatch.setattr(gcp_command, "REACHED_S", 0.1)  # no API server answers there
    monkeypatch.setattr(autoscaler_rights, "PAUSE_S", 0.0)
    monkeypatch.setitem(TYPES, "g2-standard-8", (8, 32, 1))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    monkeypatch.chdir(tmp_path)
    with simulated:
        use_google(simulated, tmp_path, monkeypatch)
        (tmp_path / "cluster.yaml").write_text(FILE)
        yield simulated
    assert simulated.violations == []

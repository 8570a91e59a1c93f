"""The recipes and the cheat sheet are true: every line is typed on real hosts."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.clusters.conftest import Lab
from tests.clusters.recipes import RECIPES, Reader
from tests.docs import test_examples as pages


@pytest.mark.hosts
@pytest.mark.xdist_group("kubeadm")
@pytest.mark.slow
@pytest.mark.soak
def test_bare_machines_and_the_cheat_sheet(lab: Callable[..., Lab]) -> None:
    reader = Reader(lab(2, "no-route"), ("cp-1", "worker-1"))
    end = "## 7. Take it down"
    reader.read("kubeadm.md", until=end)
    reader.type("$ longboat rm --all --force --yes\n")
    for line in pages.cheats():
        if line in ("longboat cluster up", "longboat cluster down --yes"):
            assert f"$ {line}\n" in (RECIPES / "kubeadm.md").read_text()
        elif line.startswith("longboat notebook "):
            continue  # there is no way to JupyterLab from test hosts: tests/workbench/test_pods.py opens it in pods
        else:
            reader.type(f"$ {line}\n")
        if line.startswith("longboat run -d -n nap"):
            reader.type("$ until longboat status nap --on lab -o json | grep -q '\"running\"'; do sleep 0.5; done\n")
    reader.read("kubeadm.md", after=end)


@pytest.mark.hosts
@pytest.mark.xdist_group("kubeadm")
@pytest.mark.slow
@pytest.mark.soak
def test_a_gpu_lab(lab: Callable[..., Lab]) -> None:
    """The GPUs are those of a stand-in driver; toolkit and device plugin are NVIDIA's own."""
    Reader(lab(2, "1:gpus=2", "no-route"), ("cp-1", "gpu-1")).read("gpu-lab.md")

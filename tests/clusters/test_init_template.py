"""The cluster file that init writes is read as it was meant."""

from __future__ import annotations

from pathlib import Path

import pytest

from longboat.clusters.cluster_file import cluster_of_hosts, read_cluster
from longboat.clusters.init_template import ClusterAnswers, write_cluster_file


@pytest.mark.parametrize("hosts", [("gpu-1",), ("root@gpu-1:22", "[fd00::5]:22", "null", "10.0.0.5", "fd00::6")])
def test_what_is_written_is_read(hosts: tuple[str, ...], tmp_path: Path) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text(write_cluster_file(ClusterAnswers(name="lab", hosts=hosts, network="flannel", gpu=True)))
    spec = read_cluster(file)
    assert spec.hosts == cluster_of_hosts(hosts, name="lab").hosts
    assert (spec.name, spec.network.kind, spec.addons) == ("lab", "flannel", ("controller", "gpu"))


def test_this_machine(tmp_path: Path) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text(write_cluster_file(ClusterAnswers(name="null")))
    assert (read_cluster(file).kind, read_cluster(file).name) == ("local", "null")


def test_the_comments_are_right_when_they_are_taken_in(tmp_path: Path) -> None:
    (tmp_path / "id_ed25519").write_text("")
    text = write_cluster_file(ClusterAnswers(name="lab", hosts=("a",))).replace("~/.ssh/", f"{tmp_path}/")
    lines = [line.removeprefix("# ") if line.startswith(("# -", "# image", "# source", "# firewall")) else line
             for line in text.splitlines()]  # fmt: skip
    file = tmp_path / "cluster.yaml"
    file.write_text("\n".join(lines))
    spec = read_cluster(file)
    assert len(spec.hosts) == 2 and spec.image is not None

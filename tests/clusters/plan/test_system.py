"""Ports that `up` opens in a host's firewall: for everybody where other hosts need them, for pods on one machine."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from longboat.clusters.plan.journal_shell import PRELUDE
from longboat.clusters.plan.steps import Kept, Step
from longboat.clusters.plan.system import firewall
from longboat.clusters.spec import ClusterSpec, HostSpec
from tests.clusters.worlds import bare, cluster

ALONE = ClusterSpec(
    name="desk", kind="local", hosts=(HostSpec(name="desk", address="", role="control-plane"),), firewall="open"
)
RICH = 'rich-rule=rule family="ipv4" source address="10.244.0.0/16" port port="6443" protocol="tcp" accept'


def calls(tmp_path: Path, spec: ClusterSpec, program: str, **facts: object) -> tuple[list[str], list[str]]:
    """What the step calls, and what its undo calls."""
    step = firewall(spec, spec.hosts[-1], bare(spec.hosts[-1].name, firewall=program, **facts))
    assert isinstance(step, Step)
    name = "ufw" if program == "ufw" else "firewall-cmd"
    log = tmp_path / "log"
    (tmp_path / name).write_text(f'#!/bin/sh\nprintf "%s|" "$@" >> {log}\necho >> {log}\n')
    (tmp_path / name).chmod(0o755)
    prelude = PRELUDE.replace("LB=/var/lib/longboat", f"LB={tmp_path}/journal")
    prelude = prelude.replace("PATH=/usr", f"PATH={tmp_path}:/usr")
    (tmp_path / "journal" / "undo").mkdir(parents=True)
    lines = []
    for script in (step.script, f'for each in "$LB"/undo/*; do PATH={tmp_path}:$PATH sh -eu "$each/run"; done'):
        log.write_text("")
        subprocess.run(["sh", "-c", f"{prelude}\n{script}"], check=True)
        lines.append(log.read_text().replace("|\n", "\n").replace("|", " ").splitlines())
    return lines[0], lines[1]


def test_on_one_machine_ufw_lets_pods_through_to_the_api_server_and_nobody_else(tmp_path: Path) -> None:
    rule = "allow from 10.244.0.0/16 to any port 6443 proto tcp"
    assert calls(tmp_path, ALONE, "ufw") == ([rule], [f"delete {rule}"])


def test_on_one_machine_firewalld_lets_pods_through_to_the_api_server_and_nobody_else(tmp_path: Path) -> None:
    assert calls(tmp_path, ALONE, "firewalld") == (
        [f"-q --add-{RICH}", f"-q --permanent --add-{RICH}"],
        [f"-q --remove-{RICH}", f"-q --permanent --remove-{RICH}"],
    )


def test_hosts_of_a_cluster_are_open_for_each_other(tmp_path: Path) -> None:
    spec = cluster(firewall="open")
    done, undone = calls(tmp_path, spec, "ufw", open_ports=("10250/tcp",))
    assert (done, undone) == (["allow 30000:32767/tcp"], ["delete allow 30000:32767/tcp"])


@pytest.mark.parametrize("opened", ["6443/tcp", "Anywhere", "6000:7000/tcp"])
def test_a_port_that_is_open_already_stays_as_it_is(opened: str) -> None:
    kept = firewall(ALONE, ALONE.hosts[0], bare("desk", firewall="ufw", open_ports=(opened,)))
    assert isinstance(kept, Kept)

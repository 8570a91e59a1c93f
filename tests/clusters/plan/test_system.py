"""Ports that `up` opens in a host's firewall: for everybody where other hosts need them, for pods on one machine.

ufw and firewalld are stand-ins that write down how they were called (the real ones: test_firewall_hosts); nftables and
iptables are the kernel's own.
"""

from __future__ import annotations

import base64
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from longboat.clusters.apply.execute import perform
from longboat.clusters.apply.step_log import StepLog
from longboat.clusters.apply.undo import audit, undo
from longboat.clusters.observe.network_checks import firewall as firewall_problems
from longboat.clusters.observe.probe import read_facts
from longboat.clusters.plan.journal_shell import PRELUDE
from longboat.clusters.plan.steps import Kept, Step
from longboat.clusters.plan.system import firewall, journal
from longboat.clusters.spec import ClusterSpec, HostSpec
from testbed.traits import FIREWALL
from tests.clusters.namespaces import NamespaceHost, namespace_host
from tests.clusters.worlds import bare, cluster

ALONE = ClusterSpec(
    name="desk", kind="local", hosts=(HostSpec(name="desk", address="", role="control-plane"),), firewall="open"
)
RICH = 'rich-rule=rule family="ipv4" source address="10.244.0.0/16" port port="6443" protocol="tcp" accept'


def calls(
    tmp_path: Path, spec: ClusterSpec, program: str, *, stops: bool = False, **facts: object
) -> tuple[list[str], list[str]]:
    """What the step calls, and what its undo calls. `stops`: of a firewall that somebody stopped in between."""
    step = firewall(spec, spec.hosts[-1], bare(spec.hosts[-1].name, firewall=program, **facts))
    assert isinstance(step, Step)
    name = "ufw" if program == "ufw" else "firewall-cmd"
    log = tmp_path / "log"
    is_off = f"[ ! -e {tmp_path}/off ] || exit 252" if program == "firewalld" else ""
    for program_name, start in ((name, is_off), ("firewall-offline-cmd", f"printf 'offline ' >> {log}")):
        (tmp_path / program_name).write_text(
            f'#!/bin/sh\n{start}\n[ "$2" != --state ] || exit 0\nprintf "%s|" "$@" >> {log}\necho >> {log}\n'
        )
        (tmp_path / program_name).chmod(0o755)
    prelude = PRELUDE.replace("LB=/var/lib/longboat", f"LB={tmp_path}/journal")
    prelude = prelude.replace("PATH=/usr", f"PATH={tmp_path}:/usr")
    (tmp_path / "journal" / "undo").mkdir(parents=True)
    lines = []
    for script in (step.script, f'for each in "$LB"/undo/*; do PATH={tmp_path}:$PATH sh -eu "$each/run"; done'):
        log.write_text("")
        subprocess.run(["sh", "-c", f"{prelude}\n{script}"], check=True)
        if stops:
            (tmp_path / "off").touch()
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


def test_a_firewalld_that_was_stopped_since_does_not_keep_the_host_from_its_way_back(tmp_path: Path) -> None:
    assert calls(tmp_path, ALONE, "firewalld", stops=True)[1] == [f"offline -q --remove-{RICH}"]


def test_firewalld_gets_a_zone_of_pods_that_goes_again(tmp_path: Path) -> None:
    """Its files by the journal; it is asked to read them at the end of each way. The real one: test_firewall_hosts."""
    spec = cluster(firewall="open", workers=0)
    ports = ("10250/tcp", "30000:32767/tcp", "6443/tcp", "2379:2380/tcp")
    step = firewall(spec, spec.hosts[0], bare("cp-0", firewall="firewalld", open_ports=ports, forwarded=()))
    assert isinstance(step, Step) and step.title == "forward packets of pods, 10.244.0.0/16, in firewalld"
    assert step.script.rstrip().endswith("firewall-cmd -q --reload")
    # Undone last, when the files have gone.
    assert step.script.index("undo firewalld-reload") < step.script.index("\nput ")
    written = re.findall(r"^put (\S+) 644 (\S+)$", step.script, re.MULTILINE)
    texts = {path: ET.fromstring(base64.b64decode(text)) for path, text in written}
    zone = texts["/etc/firewalld/zones/longboat.xml"]
    assert [each.get("port") for each in zone.iter("port")] == ["10250", "30000-32767", "6443", "2379-2380"]
    assert [each.get("address") for each in zone.iter("source")] == ["10.244.0.0/16"]
    assert set(texts) == {
        "/etc/firewalld/zones/longboat.xml", "/etc/firewalld/policies/longboat-in.xml",
        "/etc/firewalld/policies/longboat-out.xml",
    }  # fmt: skip


def test_hosts_of_a_cluster_are_open_for_each_other(tmp_path: Path) -> None:
    spec = cluster(firewall="open")
    done, undone = calls(tmp_path, spec, "ufw", open_ports=("10250/tcp",))
    assert (done, undone) == (["allow 30000:32767/tcp"], ["delete allow 30000:32767/tcp"])


@pytest.mark.parametrize("opened", ["6443/tcp", "Anywhere", "6000:7000/tcp"])
def test_a_port_that_is_open_already_stays_as_it_is(opened: str) -> None:
    kept = firewall(ALONE, ALONE.hosts[0], bare("desk", firewall="ufw", open_ports=(opened,)))
    assert isinstance(kept, Kept)


PORTS = (22, 2380, 6443, 9999, 10250, 31000)
LAB = cluster(workers=0, firewall="open")
NFTABLES = (
    FIREWALL
    + """
table ip mangle {
    chain prerouting { type filter hook prerouting priority mangle; policy accept; }
}
table inet bans {
    chain input { type filter hook input priority -10; policy accept; ip saddr 203.0.113.9 drop; }
    chain forward { type filter hook forward priority 0; policy drop; ct state established,related accept; }
}
"""
)
RED_HAT = """
iptables -A INPUT -m state --state RELATED,ESTABLISHED -j ACCEPT
iptables -A INPUT -i lo -j ACCEPT
iptables -A INPUT -p tcp -m state --state NEW -m tcp --dport 22 -j ACCEPT
iptables -A INPUT -j REJECT --reject-with icmp-host-prohibited
"""
RULES = (
    "nft list ruleset | sed 's/packets [0-9]* bytes [0-9]*//'; iptables -S; ip6tables -S; find /etc/longboat || true"
)


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[NamespaceHost]:
    with namespace_host(tmp_path, PORTS) as host:
        yield host


def carry_out(spec: ClusterSpec, desk: NamespaceHost) -> Step:
    """The journal and the firewall's step, as `up` performs them."""
    for make in (journal, firewall):
        step = make(spec, spec.hosts[0], read_facts(desk))
        assert isinstance(step, Step)
        perform(desk, step, b"", StepLog(lambda event: None))
    return step


def check_way_back(desk: NamespaceHost, before: str) -> None:
    left = audit(desk, "10.244.0.0/16").ours
    assert any("longboat" in line and "accept" in line.lower() for line in left), "the audit sees rules of ours"
    undo(desk, on_line=lambda line: None, timeout_s=60)
    assert desk.text(RULES) == before
    assert audit(desk, "10.244.0.0/16").ours == ()


def test_rules_of_nftables_are_opened_and_closed_again(desk: NamespaceHost) -> None:
    desk.text(f"nft -f - <<'RULES'\n{NFTABLES}RULES\n")
    before = desk.text(RULES)
    facts = read_facts(desk)
    assert (facts.firewall, facts.open_ports, facts.forwarded) == ("nftables", ("22/tcp",), ())
    assert desk.lets_in(22)
    assert not desk.lets_in(6443, within_s=0.5) and not desk.lets_in(9999, address="10.244.0.2", within_s=0.5)
    (problem,) = firewall_problems(LAB, LAB.hosts[0], facts)
    assert problem.severity == "repair" and problem.message == (
        "nftables lets nothing through to 10250/tcp, 30000:32767/tcp, 6443/tcp, 2379:2380/tcp "
        "and forwards nothing for pods, 10.244.0.0/16"
    )

    step = carry_out(LAB, desk)
    assert step.title == (
        "open 10250/tcp, 30000:32767/tcp, 6443/tcp, 2379:2380/tcp in nftables; "
        "forward packets of pods, 10.244.0.0/16, in nftables"
    )
    assert all(desk.lets_in(port) for port in (22, 2380, 6443, 10250, 31000))
    assert not desk.lets_in(9999, within_s=0.5), "other ports stay closed"
    assert desk.lets_in(9999, address="10.244.0.2"), "what goes to pods is forwarded"
    opened = desk.text(RULES)
    facts = read_facts(desk)
    assert isinstance(firewall(LAB, LAB.hosts[0], facts), Kept) and not list(
        firewall_problems(LAB, LAB.hosts[0], facts)
    )

    # Whoever loads the rules anew throws ours away; the unit brings them back, once.
    desk.text(f"nft -f - <<'RULES'\nflush ruleset\n{NFTABLES}RULES\nsystemctl reload longboat-firewall")
    desk.text("systemctl reload longboat-firewall; systemctl restart longboat-firewall")
    assert desk.text(RULES) == opened
    check_way_back(desk, before)


def test_on_one_machine_rules_of_nftables_let_in_pods_and_nobody_else(desk: NamespaceHost) -> None:
    desk.text(f"nft -f - <<'RULES'\n{FIREWALL}RULES\n")
    before = desk.text(RULES)
    carry_out(ALONE, desk)
    assert not desk.lets_in(6443, within_s=0.5)
    assert "ip saddr 10.244.0.0/16 tcp dport 6443 accept" in desk.text(RULES)
    check_way_back(desk, before)


@pytest.mark.parametrize("variant", ["nft", "legacy"])
def test_rules_of_iptables_are_opened_and_closed_again(desk: NamespaceHost, variant: str) -> None:
    """Of both kinds; nothing but iptables itself touches those that it keeps in nftables."""
    for name in ("iptables", "ip6tables"):
        desk.text(f"ln -sf /usr/sbin/{name}-{variant} /etc/alternatives/{name}")
    desk.text(RED_HAT)
    before = desk.text(RULES)
    facts = read_facts(desk)
    assert (facts.firewall, facts.open_ports) == ("iptables", ("22/tcp",))
    assert not desk.lets_in(6443, within_s=0.5)

    carry_out(LAB, desk)
    assert all(desk.lets_in(port) for port in (22, 2380, 6443, 10250, 31000)) and not desk.lets_in(9999, within_s=0.5)
    opened = desk.text(RULES)
    assert isinstance(firewall(LAB, LAB.hosts[0], read_facts(desk)), Kept)
    desk.text("systemctl reload longboat-firewall")
    assert desk.text(RULES) == opened

    check_way_back(desk, before)

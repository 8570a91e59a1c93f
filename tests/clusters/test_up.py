"""What `up` tells when a part of it fails, what it fetches, and tokens of hosts that join. Simulated transport."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from longboat.clusters import small_files, up
from longboat.clusters.apply import nodes as cluster_nodes
from longboat.clusters.apply.nodes import JoinTokens
from longboat.clusters.hosts.connection import CommandResult, Line
from longboat.clusters.plan.kubeadm import as_text, certificate_documents
from longboat.clusters.plan.network import NodeView
from longboat.clusters.plan.steps import Step
from longboat.clusters.small_files import load_file
from longboat.clusters.up import ClusterUp
from longboat.core.errors import EngineError
from tests.clusters.worlds import KEYS, bare, cluster

HASH = "sha256:" + "0" * 64


class SimulatedHost:
    """Scripts that hold one of `breaks` fail."""

    def __init__(self, name: str, log: list[str], breaks: tuple[str, ...] = ()) -> None:
        self.name, self.log, self.breaks = name, log, breaks

    def run(
        self, script: str, *, stdin: bytes | Path = b"", as_root: bool = True, timeout_s: float = 60.0,
        on_line: Line | None = None,
    ) -> CommandResult:  # fmt: skip
        self.log.append(f"{self.name}: {script}")
        out = ""
        if "token create" in script:
            out = f"kubeadm join 10.0.0.1:6443 --token abc{len(self.log):03}.x --discovery-token-ca-cert-hash {HASH}"
        if "upload-certs" in script:
            self.log.append(bytes(stdin).decode() if isinstance(stdin, bytes) else "")
        is_broken = any(sign in script for sign in self.breaks)
        return CommandResult(code=1 if is_broken else 0, stdout=out, stderr="error: broken" if is_broken else "")

    def close(self) -> None: ...


def test_hosts_that_failed_are_told_even_if_the_others_get_no_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(up, "RANGES_S", 0.0)
    monkeypatch.setattr(up, "load_keys", lambda spec, facts: KEYS)
    spec, log = cluster(workers=2), list[str]()
    hosts = {
        "cp-0": SimulatedHost("cp-0", log, ("get nodes",)),
        "w-0": SimulatedHost("w-0", log, ("NAMES='",)),
        "w-1": SimulatedHost("w-1", log),
    }
    facts = {host.name: bare(host.name) for host in spec.hosts}
    work = ClusterUp(spec, hosts, facts, lambda event: None)
    result = work.run(work.plan())
    assert [(failure.host, failure.step) for failure in result.failures][0] == ("w-0", "packages")
    assert result.failures[-1].host == "cp-0"


def test_every_host_joins_with_a_token_of_its_own_and_none_is_left() -> None:
    log: list[str] = []
    spec = cluster(planes=3, workers=0, endpoint="10.0.0.9")
    certificates = lambda key: as_text(certificate_documents(spec, spec.hosts[0], bare("cp-0"), key))  # noqa: E731
    tokens = JoinTokens(SimulatedHost("cp-0", log), certificates)
    tickets = [tokens.ticket(is_control_plane=False), tokens.ticket(is_control_plane=True)]
    assert len({ticket.token for ticket in tickets}) == 2
    assert tickets[0].certificate_key == "" and re.fullmatch("[0-9a-f]{64}", tickets[1].certificate_key)
    # Through stdin, and with an address: kubeadm would look for a default route, which hosts need not have.
    assert f'"certificateKey": "{tickets[1].certificate_key}"' in log[-1]
    assert '"advertiseAddress": "10.0.0.1"' in log[-1]
    assert not any(tickets[1].certificate_key in line for line in log[:-1])
    tokens.delete()
    for ticket in tickets:
        assert ticket.token.partition(".")[0] in log[-1].partition("token delete")[2]
    assert "delete secret kubeadm-certs" in log[-1]
    count = len(log)
    tokens.delete()
    assert len(log) == count  # there is nothing more to delete


@pytest.mark.parametrize(
    ("journal", "ready", "is_asked"),
    [((), (), True), (("0001-data", "0009-kubernetes"), (), False), ((), ("cp-1",), False), ((), ("cp-2",), True)],
)
def test_a_control_plane_made_anew_takes_the_place_that_its_name_has_in_etcd(
    journal: tuple[str, ...], ready: tuple[str, ...], is_asked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """kubeadm waits in vain for the member of the machine that was lost. One that has begun to join is left alone, and
    so is one that is alive: two hosts of one name.
    """
    spec, log, asked = cluster(planes=3, workers=1, endpoint="10.0.0.9"), list[str](), list[str]()
    nodes = [NodeView(name=host.name, address="", pods="", is_ready=host.name in ready) for host in spec.hosts if ready]
    monkeypatch.setattr(cluster_nodes, "read_nodes", lambda control: nodes)
    monkeypatch.setattr(up, "remove_member", lambda control, name: asked.append(f"{control.name}: {name}"))
    hosts = {host.name: SimulatedHost(host.name, log) for host in spec.hosts}
    facts = {host.name: bare(host.name, journal=journal) for host in spec.hosts}
    work = ClusterUp(spec, hosts, facts, lambda event: None)
    for name in ("cp-1", "w-0"):
        work._stdin(Step(host=name, name="join", title="", script="", kind="join"))
    assert asked == (["cp-0: cp-1"] if is_asked else [])


def test_a_file_that_is_too_large_is_not_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(small_files, "_FILE_BYTES", 8 << 20)
    (tmp_path / "big").write_bytes(b"x" * (8 << 20))
    assert len(load_file(str(tmp_path / "big"))) == 8 << 20
    (tmp_path / "big").write_bytes(b"x" * ((8 << 20) + 1))
    with pytest.raises(EngineError, match="it is larger than 8 MiB"):
        load_file(str(tmp_path / "big"))

"""A lost control plane goes out of a real etcd, by its real kubectl; when etcd cannot, that is said."""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pytest

from longboat.clusters.apply import answers, etcd_members
from longboat.clusters.apply.etcd_members import remove_member
from longboat.clusters.hosts.connection import CommandResult, Content, Line
from longboat.core.errors import EngineError
from testbed import processes, requirements
from testbed.binaries import Binaries, find
from testbed.certificates import Certificate
from testbed.clusters import free_ports

PLANES = ("cp-0", "cp-1", "cp-2")


class ControlPlane:
    """Runs scripts here, with its own files and port in place of the host's."""

    name = "cp-0"

    def __init__(self, folder: Path, programs: Binaries, port: int) -> None:
        self.folder, self.programs, self.port = folder, programs, port

    def run(
        self, script: str, *, stdin: Content = b"", as_root: bool = True, timeout_s: float = 60.0,
        on_line: Line | None = None,
    ) -> CommandResult:  # fmt: skip
        assert isinstance(stdin, bytes)
        text = script.replace("/etc/kubernetes/pki", str(self.folder)).replace(":2379", f":{self.port}")
        text = text.replace("=10s", "=2s")
        done = subprocess.run(
            ["sh", "-c", text], input=stdin, capture_output=True, timeout=timeout_s, check=False,
            env={"PATH": self.programs.search_path()},
        )  # fmt: skip
        return CommandResult(code=done.returncode, stdout=done.stdout.decode(), stderr=done.stderr.decode())

    def close(self) -> None: ...


def make_certificates(folder: Path, programs: Binaries) -> None:
    wanted = Certificate("apiserver-etcd-client", "etcd", ("system:masters",), ("127.0.0.1", "localhost"))
    order = {"folder": str(folder), "certificates": [asdict(wanted)], "keys": []}
    subprocess.run([str(programs["certificates"])], input=json.dumps(order), text=True, check=True)
    (folder / "etcd").mkdir()
    (folder / "etcd" / "ca.crt").write_bytes((folder / "ca.crt").read_bytes())


def arguments(folder: Path, programs: Binaries, ports: dict[str, int], name: str) -> list[str]:
    client, peer = f"https://127.0.0.1:{ports[name]}", f"http://127.0.0.1:{ports[f'{name} peer']}"
    others = ",".join(f"{plane}=http://127.0.0.1:{ports[f'{plane} peer']}" for plane in PLANES)
    values = {
        "name": name, "data-dir": folder / name, "listen-client-urls": client, "advertise-client-urls": client,
        "listen-peer-urls": peer, "initial-advertise-peer-urls": peer, "initial-cluster": others,
        "trusted-ca-file": folder / "ca.crt", "cert-file": folder / "apiserver-etcd-client.crt",
        "key-file": folder / "apiserver-etcd-client.key", "client-cert-auth": "true",
    }  # fmt: skip
    return [str(programs["etcd"]), *(f"--{key}={value}" for key, value in values.items())]


@contextlib.contextmanager
def started(folder: Path, programs: Binaries, ports: dict[str, int], names: tuple[str, ...]) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        for name in names:
            log = stack.enter_context((folder / f"{name}.log").open("wb"))
            process = subprocess.Popen(arguments(folder, programs, ports, name), stdout=log, stderr=log)
            stack.callback(process.wait)
            stack.callback(process.kill)
        yield


@pytest.fixture
def programs() -> Binaries:
    lacks = requirements.missing_programs(("tools", "etcd", "kubernetes"))
    if lacks:
        pytest.skip(lacks)
    return find(("tools", "etcd", "kubernetes"), quiet=True)


def members(control: ControlPlane) -> list[str]:
    listed = etcd_members._members(control)
    return sorted(member.get("name", "") for member in listed)


@pytest.mark.cluster
def test_a_member_that_never_answers_is_removed_and_only_that_one(tmp_path: Path, programs: Binaries) -> None:
    ports = free_ports((*PLANES, *(f"{name} peer" for name in PLANES)))
    make_certificates(tmp_path, programs)
    control = ControlPlane(tmp_path, programs, ports["cp-0"])
    with started(tmp_path, programs, ports, PLANES[:2]):
        # etcd listens after a moment: asked too early, it is asked again.
        assert remove_member(control, "cp-2")
        assert members(control) == ["cp-0", "cp-1"]
        assert not remove_member(control, "cp-2"), "the same command again"
        assert not remove_member(control, "cp-"), "no other whose name begins like it"


@pytest.mark.cluster
def test_without_a_majority_nothing_is_removed_and_that_is_said(
    tmp_path: Path, programs: Binaries, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(etcd_members, "WITHIN_S", 0.0)
    monkeypatch.setattr(answers, "_LOOK_S", 0.0)
    ports = free_ports((*PLANES, *(f"{name} peer" for name in PLANES)))
    make_certificates(tmp_path, programs)
    control = ControlPlane(tmp_path, programs, ports["cp-0"])
    with started(tmp_path, programs, ports, PLANES[:1]), pytest.raises(EngineError) as caught:
        assert processes.wait_until(lambda: b"raft" in (tmp_path / "cp-0.log").read_bytes(), 20)
        remove_member(control, "cp-2")
    assert "cp-2 cannot be taken out of etcd" in caught.value.message
    assert caught.value.hint and "bring another control plane back" in caught.value.hint


@pytest.mark.parametrize("text", ["", "[]", '{"members": [{"name": "cp-2", "ID": "1; rm"}]}', '{"members": [3]}'])
def test_a_list_that_is_none_is_said(text: str) -> None:
    class Odd(ControlPlane):
        def run(self, script: str, **rest: object) -> CommandResult:
            return CommandResult(code=0, stdout=text, stderr="")

    with pytest.raises(EngineError, match="etcd's list of members is not understood"):
        remove_member(Odd(Path("/x"), Binaries(), 1), "cp-2")

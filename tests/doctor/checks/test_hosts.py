"""Hosts of a cluster file, as facts of broken ones; and what a host prints."""

from __future__ import annotations

import base64
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from longboat.clusters.observe import facts
from longboat.clusters.observe.facts import GpuDevice, HostFacts, HostProblem
from longboat.clusters.spec import ClusterSpec, HostSpec
from longboat.core.errors import EngineError
from longboat.doctor.catalog import HOST_CHECKS
from longboat.doctor.checks.hosts import PROBLEMS
from longboat.doctor.examination import judge
from longboat.doctor.facts import HOSTS, Seen
from longboat.doctor.findings import Finding
from longboat.doctor.observe.hosts import SCRIPT, repairs, report_of, xids
from longboat.doctor.values import HostReport

NOW = 1_700_000_000.0
DAY = 86400.0
UNITS = (("kubelet", "active"), ("containerd", "active"))
LOOKED: dict[str, Any] = {
    "is_member": True,
    "look_error": "",
    "has_kernel_log": True,
    "synchronized": True,
    "inodes_free": 0.5,
    "certificates": (("apiserver.crt", NOW + 300 * DAY),),
    "members": ("a",),
    "now": NOW,
}
SPEC = ClusterSpec(name="lab", hosts=(HostSpec(name="a", address="a"),))


def findings(*reports: HostReport) -> dict[str, Finding]:
    return {finding.name: finding for finding in judge(HOST_CHECKS, Seen({HOSTS: list(reports)}))}


def report(known: dict[str, Any] | None = None, **more: Any) -> HostReport:
    admin = (("/etc/kubernetes/admin.conf", "x"),)
    usual = {"name": "a", "units": UNITS, "sysctls": (("net.ipv4.ip_forward", "1"),), "files": admin}
    seen = HostFacts(**{**usual, **(known or {})})
    return HostReport(**{"name": "a", "facts": seen, **LOOKED, **more})


def test_a_host_that_is_fit() -> None:
    found = findings(report())
    assert {finding.status for finding in found.values()} == {"ok"} and len(found) > 30


@pytest.mark.parametrize(
    ("name", "known", "more", "wanted"),
    [
        ("host membership", {}, {"is_member": False}, "warning"),
        ("host kubelet", {"units": (("containerd", "active"),)}, {}, "broken"),
        ("host runtime", {"units": (("kubelet", "active"), ("containerd", "failed"))}, {}, "broken"),
        ("host certificates", {}, {"certificates": (("apiserver.crt", NOW - DAY),)}, "broken"),
        ("host certificates", {}, {"certificates": (("apiserver.crt", NOW + DAY),)}, "warning"),
        ("host etcd", {}, {"members": ("a", "gone")}, "broken"),
        ("host xid", {}, {"xids": (("0000:41:00", 79),)}, "broken"),
        ("host xid", {}, {"xids": (("0000:41:00", 31),)}, "warning"),
        ("host driver match", {}, {"module": "580.1.2", "library": "580.95.05"}, "broken"),
        ("host nvidia-smi", {"gpus": (GpuDevice(bus="0", device="1"),), "driver": "580"}, {"smi_gpus": 0}, "broken"),
        ("host nvidia-smi", {"gpus": (GpuDevice(bus="0", device="1"),), "driver": "580"}, {"smi_error": "x"}, "broken"),
        ("host cdi", {"driver": "580.95.05"}, {}, "warning"),
        ("host cdi", {"driver": "580.95.05"}, {"has_cdi": True}, "ok"),
        ("host driver match", {"driver": "580"}, {"module": "580", "library": "580"}, "ok"),
        ("host nvidia-smi", {"gpus": (GpuDevice(bus="0", device="1"),), "driver": "580"}, {"smi_gpus": 1}, "ok"),
        ("host ntp", {}, {"synchronized": False}, "warning"),
        ("host inodes", {}, {"inodes_free": 0.01}, "broken"),
        ("host forwarding", {"sysctls": (("net.ipv4.ip_forward", "0"),)}, {}, "broken"),
        ("host fabric", {}, {"problems": (HostProblem(host="a", check="fabric", message="off"),)}, "broken"),
        (
            "host swap",
            {},
            {"problems": (HostProblem(host="a", check="swap", message="on", severity="repair"),)},
            "warning",
        ),
    ],
)
def test_what_is_broken(name: str, known: dict[str, Any], more: dict[str, Any], wanted: str) -> None:
    finding = findings(report(known, **more))[name]
    assert finding.status == wanted and bool(finding.hint) == (wanted != "ok")


@pytest.mark.parametrize("kind", PROBLEMS)
def test_problems_that_stand_against_a_cluster(kind: str) -> None:
    for severity, wanted in (("error", "broken"), ("repair", "warning"), ("warning", "warning")):
        problem = HostProblem(host="a", check=kind, message="no", severity=severity, remedy="mend it")
        finding = findings(report(problems=(problem,)))[f"host {kind}"]
        assert (finding.status, finding.detail, finding.hint) == (wanted, "a: no", "mend it")


def test_every_problem_of_hosts_has_its_check() -> None:
    folder = Path(facts.__file__).parent
    kinds = {kind for file in folder.glob("*.py") for kind in re.findall(r'check="([a-z-]+)"', file.read_text())}
    assert kinds - {"connection"} == set(PROBLEMS)


def test_a_host_that_does_not_answer() -> None:
    found = findings(HostReport(name="a", error="connection refused"))
    assert found["host login"].status == "broken" and "a: connection refused" in found["host login"].detail
    assert {finding.status for finding in found.values()} == {"broken", "skipped"}
    found = findings(report(), HostReport(name="b", error="connection refused"))
    assert found.pop("host login").status == "broken"
    assert {finding.status for finding in found.values()} == {"ok"}
    assert all(finding.detail.endswith("; not known of b") for finding in found.values())


@pytest.mark.parametrize(
    ("name", "known", "more"),
    [
        ("host certificates", {}, {"certificates": ()}),
        ("host etcd", {}, {"members": None}),
        ("host xid", {}, {"has_kernel_log": False}),
        ("host driver match", {"driver": "580"}, {"module": "580"}),
        ("host nvidia-smi", {"gpus": (GpuDevice(bus="0", device="1"),), "driver": "580"}, {}),
        ("host ntp", {}, {"synchronized": None}),
        ("host inodes", {}, {"inodes_free": None}),
        ("host forwarding", {"sysctls": ()}, {}),
        ("host firewall", {"sudo": "asks"}, {}),
        ("host membership", {"sudo": "none"}, {"is_member": False}),
    ],
)
def test_what_could_not_be_read_is_not_ok(name: str, known: dict[str, Any], more: dict[str, Any]) -> None:
    assert findings(report(), report({"name": "b", **known}, name="b", **more))[name].status == "skipped"


@pytest.mark.parametrize("error", [None, EngineError("a: no answer within 60 s")])
def test_a_second_look_that_fails(error: EngineError | None) -> None:
    text = "kernel_log\t1\nNTPSynchronized\tyes\ninodes\t/dev/sda1 1000 10 990 1% /"
    driver = HostFacts(name="a", journal_cluster="lab", driver="580", gpus=(GpuDevice(bus="0", device="1"),))
    found = findings(report_of(SPEC, driver, text, {}, error))
    for name in ("certificates", "xid", "driver match", "nvidia-smi", "cdi", "ntp", "inodes"):
        assert found[f"host {name}"].status == "skipped", name
        assert ("no answer within" if error else "cut off") in found[f"host {name}"].detail
    assert findings(report_of(SPEC, driver, f"{text}\nend\t1", {}))["host xid"].status == "ok"


def test_nvidia_smi_that_hangs() -> None:
    facts = HostFacts(name="a", gpus=(GpuDevice(bus="0", device="1"),), driver="580")
    finding = findings(report_of(SPEC, facts, "smi\t124 0\nsmi_error\t\nend\t1", {}))["host nvidia-smi"]
    assert finding.status == "broken" and finding.detail == "a: nvidia-smi hangs (exit code 124)"


def look_with(folder: Path, **programs: str) -> HostReport:
    """What the script prints on this machine with these programs in place of the real ones."""
    for name, body in {"timedatectl": "echo yes", "dmesg": "exit 1", "journalctl": "exit 1", **programs}.items():
        (folder / name).write_text(f"#!/bin/sh\n{body}\n")
        (folder / name).chmod(0o755)
    environment = {"PATH": f"{folder}:/usr/sbin:/usr/bin:/sbin:/bin"}
    done = subprocess.run(["sh", "-c", SCRIPT], env=environment, capture_output=True, text=True, check=True)
    return report_of(SPEC, HostFacts(name="a"), done.stdout, {})


def test_kernel_logs(tmp_path: Path) -> None:
    assert findings(look_with(tmp_path))["host xid"].status == "skipped"
    quiet = look_with(tmp_path, dmesg="echo '[1.0] Linux version'")
    assert quiet.has_kernel_log and not quiet.xids and not quiet.look_error
    soft = 'for at in $(seq 900); do echo "[$at] NVRM: Xid (PCI:0000:02:00): 31, pid=$at, name=p"; done'
    hard = "echo '[1.0] NVRM: Xid (PCI:0000:41:00): 79, GPU has fallen off the bus.'"
    both = (("0000:02:00", 31), ("0000:41:00", 79))
    assert sorted(look_with(tmp_path, dmesg=f"{hard}; {soft}").xids) == list(both)
    assert sorted(look_with(tmp_path, dmesg=soft, journalctl=hard).xids) == list(both)


def test_what_a_host_prints(tmp_path: Path) -> None:
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    files = [
        "-subj",
        "/CN=a",
        "-days",
        "30",
        "-keyout",
        str(tmp_path / "k"),
        "-outform",
        "DER",
        "-out",
        str(tmp_path / "c"),
    ]
    subprocess.run([*command, *files], check=True, capture_output=True)
    text = base64.b64encode((tmp_path / "c").read_bytes()).decode()
    lines = [
        f"certificate\tapiserver.crt {text}",
        "certificate\tbroken.crt !!!",
        "xid\t[1.0] NVRM: Xid (PCI:0000:41:00): 79, pid='<unknown>', GPU has fallen off the bus.",
        "smi\t9 0",
        "smi_error\tNVIDIA-SMI has failed",
        "library\t/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.580.95.05",
        "module\tNVRM version: NVIDIA UNIX x86_64 Kernel Module  570.1.2  Mon Jan 1",
        "cdi\t/etc/cdi/nvidia.yaml",
        "NTPSynchronized\tno",
        "CanNTP\tyes",
        "NTP\tno",
        "inodes\t/dev/sda1 1000 990 10 99% /",
    ]
    seen = report_of(SPEC, HostFacts(name="a", journal_cluster="lab"), "\n".join(lines), {})
    assert [name for name, _ in seen.certificates] == ["apiserver.crt"] and seen.is_member and seen.has_cdi
    assert (seen.library, seen.module, seen.smi_error) == ("580.95.05", "570.1.2", "NVIDIA-SMI has failed")
    assert seen.is_ntp_off
    assert (seen.xids, seen.smi_gpus, seen.synchronized, seen.inodes_free) == ((("0000:41:00", 79),), None, False, 0.01)
    empty = report_of(SPEC, HostFacts(name="a"), "\0\xff\nno tab\nsmi\t", {})
    assert empty.smi_gpus is None and empty.inodes_free is None and not empty.is_member


def test_what_fix_does_and_when_there_is_nothing_to_do() -> None:
    idle = (("kubelet", "inactive"), ("containerd", "failed"), ("nvidia-fabricmanager", "inactive"))
    assert repairs(report({"units": idle}, is_ntp_off=True)) == [
        "systemctl start containerd", "systemctl start kubelet", "timedatectl set-ntp true",
    ]  # fmt: skip
    assert repairs(report({"units": idle[2:], "nvswitch": True})) == ["systemctl start nvidia-fabricmanager"]
    assert repairs(report()) == repairs(report({"units": idle}, is_member=False)) == []
    assert repairs(HostReport(name="a", error="gone")) == []


def test_xids_of_several_kernels() -> None:
    lines = ["NVRM: Xid (PCI:0000:01:00): 31, pid=1", "NVRM: Xid (0000:02:00): 13, Graphics", "NVRM: Xid: none", ""]
    assert xids(lines) == [("0000:01:00", 31), ("0000:02:00", 13)]

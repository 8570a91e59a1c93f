"""Hosts answer over SSH, have what was asked to be wrong with them, and leave nothing behind."""

from __future__ import annotations

import contextlib
import http.server
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from testbed import apt_repository, cleanup, clusters, driver, hostfaults, network, packages, processes, requirements
from testbed import hosts as machines
from testbed.errors import Missing, TestbedError
from testbed.hosts import Group
from tests.testbed.cleaning import cleaned

ROOT = Path(__file__).resolve().parents[2]
Start = Callable[..., Group]
INSTALL_TOOLKIT = """sudo sh -c '
set -e
mkdir -p /etc/apt/keyrings
curl -fsS {url}/Release.key -o /etc/apt/keyrings/nvidia.asc
rm -f /etc/apt/sources.list
echo "deb [signed-by=/etc/apt/keyrings/nvidia.asc] {url}/ /" > /etc/apt/sources.list.d/nvidia.list
apt-get -q update
apt-get -q install --yes nvidia-container-toolkit'"""


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    whole = [sys.executable, "-m", "testbed", "hosts", *arguments]
    return subprocess.run(whole, cwd=ROOT, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)


def loop_files() -> list[str]:
    return [file.read_text().strip() for file in Path("/sys/block").glob("loop*/loop/backing_file")]


@contextlib.contextmanager
def served(folder: Path) -> Iterator[str]:
    """A web server on this machine's own address, not on the hosts' network."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        asked.connect(("192.0.2.1", 9))
        address = str(asked.getsockname()[0])
    (folder / "hello").write_text("hello")
    handler = type("Quiet", (http.server.SimpleHTTPRequestHandler,), {"log_message": lambda *_: None})
    server = http.server.ThreadingHTTPServer((address, 0), lambda *a: handler(*a, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://{address}:{server.server_port}/hello"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machines, "COMMANDS", {"no-such-command": "some-package"})
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert machines.missing() == "hosts need the packages some-package"
    with pytest.raises(Missing, match="some-package"):
        machines.up("one", 1)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert machines.missing() == "hosts need root"


def test_mistakes_are_one_line(state: Path) -> None:
    for arguments, told in (
        (["up", "0"], "1 to 200 hosts"),
        (["up", "2", "--trait", "nosuch"], "is no trait"),
        (["status"], "there are no hosts 'hosts'"),
    ):
        done = command(*arguments)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
        assert told in done.stderr
    assert command("down").returncode == 0


@pytest.mark.hosts
def test_login_sudo_and_network(state: Path, hosts: Start, tmp_path: Path) -> None:
    group = hosts(2)
    one, two = group.hosts
    assert one.run("hostname; id -un; sudo id -un").split() == ["host-0", "admin", "root"]
    assert two.run("id -un", user="root") == "root\n"
    assert one.run("systemctl is-system-running --wait || systemctl --failed") == "running\n"
    assert one.run("cat /etc/machine-id") != two.run("cat /etc/machine-id")
    one.run(f"ping -c 1 -W 5 {two.address} && ping -c 1 -W 5 {group.gateway}")
    with pytest.raises(TestbedError, match="Permission denied"):
        one.run("cat /etc/shadow")
    with served(tmp_path) as address:
        assert one.run(f"curl -sS --noproxy '*' {address}") == "hello"
    assert machines.up(group.record.name, 2).hosts == group.hosts, "it runs already"
    with pytest.raises(TestbedError, match="something else"):
        machines.up(group.record.name, 3)


@pytest.mark.hosts
def test_without_a_way_out_slow_and_with_a_wrong_clock(state: Path, hosts: Start, tmp_path: Path) -> None:
    group = hosts(1, "no-route", "slow=4mbit", "clock=+1h")
    host = group.hosts[0]
    host.run(f"ping -c 1 -W 5 {group.gateway}")
    with served(tmp_path) as address, pytest.raises(TestbedError, match="Failed to connect|Couldn't connect"):
        host.run(f"curl -sS --noproxy '*' --max-time 20 {address}")
    inside = host.run("sudo tc qdisc show dev host0")
    holder = processes.recorded(group.record.processes)["room-holder"].pid
    seen = ["nsenter", "-t", str(holder), "-n", "--", "tc", "qdisc", "show", "dev", "vb-host-0"]
    outside = subprocess.run(seen, capture_output=True, text=True, check=True).stdout
    assert "tbf" in inside and "rate 4Mbit" in inside and "rate 4Mbit" in outside
    for asked in ("date +%s", "sudo date +%s", "sudo systemd-run --quiet --pipe date +%s"):
        assert 3500 < int(host.run(asked)) - time.time() < 3700, asked
    assert host.run("systemctl is-system-running --wait || systemctl --failed") == "running\n"


@pytest.mark.hosts
def test_a_small_disk_and_what_others_left(state: Path, hosts: Start) -> None:
    group = hosts(2, "1:disk=128M", "1:junk")
    plain, host = group.hosts
    assert int(host.run("df --output=size -B1 / | tail -1")) <= 128 << 20
    for folder in ("/", "/var/lib"):
        with pytest.raises(TestbedError, match="No space left"):
            host.run(
                f"sudo dd if=/dev/zero of={folder}/big bs=1M count=200; status=$?; sudo rm {folder}/big; exit $status"
            )
    assert "disabled_plugins" in host.run("cat /etc/containerd/config.toml")
    assert " swap " in host.run("cat /etc/fstab")
    listening = "sudo ss -Hltn 'sport = :6443 or sport = :10250' | wc -l"
    assert processes.wait_until(lambda: host.run(listening) == "2\n", 30)
    assert plain.run(f"{listening}; ls /etc/containerd 2>&1 | wc -l; cat /etc/fstab") == "0\n1\n"


@pytest.mark.hosts
def test_hosts_with_gpus_of_a_stand_in_driver(state: Path, hosts: Start) -> None:
    """One with its driver, one whose GPUs are on the bus alone; the first as good as new after a restart."""
    lacks = apt_repository.missing() or requirements.missing_programs(packages.targets_of(packages.OF_NVIDIA))
    if lacks:
        pytest.skip(lacks)
    group = hosts(2, "0:gpus=2", "1:gpus=3", "1:no-driver")
    ready, bare = group.hosts
    seen = "nvidia-smi -L; ls /dev | grep ^nvidia; cat /proc/driver/nvidia/version /sys/module/nvidia/version"
    count = "grep -l 0x10de /sys/bus/pci/devices/*/vendor | wc -l"
    told = ready.run(f"{seen}; {count}")
    assert told.startswith(f"GPU 0: NVIDIA H200 (UUID: {driver.uuid(1, 0)})\nGPU 1: ")
    assert told.endswith(f"\n{driver.VERSION}\n2\n") and told.count(driver.VERSION) == 2
    assert set(driver.device_minors(2, 1)) <= set(told.split())
    assert bare.run(f"{count}; ls /dev | grep -c ^nvidia; ls /sys/module/nvidia /proc/driver/nvidia 2>&1; true") == (
        "3\n0\nls: cannot access '/sys/module/nvidia': No such file or directory\n"
        "ls: cannot access '/proc/driver/nvidia': No such file or directory\n"
    )
    for host in group.hosts:
        assert host.run("systemctl is-system-running --wait || systemctl --failed") == "running\n"
    # NVIDIA's own toolkit, as apt installs it, describes them to container runtimes.
    ready.run(INSTALL_TOOLKIT.format(url=apt_repository.serve(group).nvidia_url()), within_s=600)
    listed = ready.run("sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml 2>&1; nvidia-ctk cdi list")
    assert {f"nvidia.com/gpu={name}" for name in ("0", "1", "all", driver.uuid(1, 0))} <= set(listed.split())
    machines.switch_off(group.record, ready)
    machines.switch_on(group.record, ready)
    assert processes.wait_until(lambda: machines.answers(ready), 60)
    assert ready.run(f"{seen}; {count}") == told


@pytest.mark.hosts
def test_sudo_kernel_firewall_and_leftovers(state: Path, hosts: Start) -> None:
    traits = ("0:no-sudo", "0:old-kernel", "1:sudo-password=secret", "1:full-disk", "1:leftover-cluster", "1:firewall")
    group = hosts(2, *traits)
    nobody, asked = group.hosts
    with pytest.raises(TestbedError, match="password is required"):
        nobody.run("sudo -n true")
    assert nobody.run("uname -r; python3 -c 'import os; print(os.uname().release)'").count("2.6.") == 2
    assert asked.run("sudo -kS -p '' id -u", text="secret\n") == "0\n"
    with pytest.raises(TestbedError, match="password is required"):
        asked.run("sudo -n true")
    assert int(asked.run("df --output=avail -B1 /var/lib | tail -1")) <= 16 << 20
    assert asked.run("ls /etc/kubernetes").split() == ["admin.conf", "kubelet.conf", "manifests", "pki"]
    asked.run("nohup python3 -m http.server 10250 >/dev/null 2>&1 &")
    reached = f"curl -sS --noproxy '*' --max-time 5 http://{asked.address}:10250/"
    assert processes.wait_until(lambda: "10250" in asked.run("ss -Hltn 'sport = :10250'"), 30)
    with pytest.raises(TestbedError, match="timed out|Timeout"):
        nobody.run(reached)


@pytest.mark.hosts
def test_logins_are_cut_the_cable_is_pulled_and_the_host_key_changes(state: Path, hosts: Start) -> None:
    group = hosts(1)
    (host,) = group.hosts
    session = subprocess.Popen(host.command("echo began; sleep 600"), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert session.stdout and session.stdout.readline() == b"began\n"
    hostfaults.cut_logins(group.record, host)
    assert session.wait(60) == 255
    assert host.run("echo welcome") == "welcome\n"
    with hostfaults.unplugged(group.record, host):
        with pytest.raises(OSError):
            socket.create_connection((host.address, 22), timeout=1).close()
    assert processes.wait_until(lambda: machines.answers(host), 60)
    hostfaults.change_host_key(group.record, host)
    with pytest.raises(TestbedError, match="HOST IDENTIFICATION HAS CHANGED|verification failed"):
        host.run("true")


@pytest.mark.hosts
def test_what_is_on_the_disk_survives_off_and_on(state: Path, hosts: Start) -> None:
    group = hosts(1)
    host = group.hosts[0]
    host.run("echo kept > kept; sudo touch /var/lib/kept")
    machines.switch_off(group.record, host)
    assert not machines.answers(host)
    assert "\toff\t" in command("status", "--name", group.record.name).stdout
    machines.switch_on(group.record, host)
    assert processes.wait_until(lambda: machines.answers(host), 60)
    assert host.run("cat kept; ls /var/lib/kept") == "kept\n/var/lib/kept\n"
    os.kill(processes.recorded(group.record.processes)["host-0"].pid, signal.SIGKILL)
    machines.switch_on(group.record, host)
    assert processes.wait_until(lambda: machines.answers(host), 60), "its cable was left and is not in the way"


@pytest.mark.hosts
def test_two_groups_at_once_leave_nothing_behind(state: Path, hosts: Start) -> None:
    del hosts  # asked for because it skips where hosts cannot be had
    before = cleanup.inventory()
    up = command("up", "2", "--trait", "disk=128M")
    assert up.returncode == 0, up.stderr
    reached = [line.split("\t") for line in up.stdout.splitlines()]
    assert [row[0] for row in reached] == ["host-0", "host-1"]
    other = machines.up("other", 1)
    told = subprocess.run([*reached[1][2].split(), "hostname"], capture_output=True, text=True, check=False)
    assert told.stdout == "host-1\n", told.stderr
    assert [line.split("\t")[1] for line in command("status").stdout.splitlines()] == ["answers", "answers"]
    first = machines.get("hosts").record
    assert network.is_connected(first) and any(str(state) in file for file in loop_files())
    assert command("down").returncode == 0
    assert cleanup.left_behind(before, cleanup.inventory(), first) == [f"files: {other.record.folder}"]
    assert machines.answers(other.hosts[0])
    assert command("down", "--name", "other").returncode == 0
    assert cleanup.left_behind(before, cleanup.inventory(), other.record) == []
    assert not any(str(state) in file for file in loop_files())
    assert not state.exists()


@pytest.mark.hosts
@pytest.mark.parametrize("moment", ["room-room", "host-0", "ready"])
def test_kill_in_the_middle_is_repaired(state: Path, hosts: Start, moment: str) -> None:
    """The starter is killed at this moment: `clean` removes what it left, and only then is it as before."""
    del hosts
    before = cleanup.inventory()
    code = "import time; from testbed import hosts; hosts.up('one', 2, ['disk=128M'], lease=True); time.sleep(600)"
    starter = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, start_new_session=True)
    folder = clusters.folder_of("one")

    def is_reached() -> bool:
        record = clusters.load("one")
        return (
            bool(record and record.ready) if moment == "ready" else (folder / "processes" / f"{moment}.json").exists()
        )

    try:
        assert processes.wait_until(is_reached, 120, every_s=0.005)
    finally:
        os.killpg(starter.pid, signal.SIGKILL)
        starter.wait()
    half = clusters.load("one")
    assert half and processes.marked(half.id)
    assert cleaned() == ["cluster one"]
    assert cleanup.left_behind(before, cleanup.inventory(), half) == []
    assert not any(str(state) in file for file in loop_files())

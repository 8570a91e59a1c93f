"""Real machines over SSH: host keys, bastions, sudo, limits, connections that break. One group for all tests here."""

from __future__ import annotations

import hashlib
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from longboat.clusters.hosts.connection import HostConnection, HostUnreachable, NoRoot
from longboat.clusters.hosts.pool import Hosts, connect
from longboat.clusters.hosts.settings import LoginSettings
from longboat.clusters.observe.probe import read_facts
from longboat.clusters.observe.problems import find_problems
from longboat.clusters.spec import ClusterSpec, HostSpec
from testbed import hosts as machines
from testbed import namespaces
from testbed.hosts import Group

pytestmark = pytest.mark.hosts
PLAIN, JUNK, FAR = "host-0", "host-1", "host-2"
ACCOUNTS = """
for name in nobody-special with-password; do
    useradd --create-home --shell /bin/bash $name
    mkdir -p /home/$name/.ssh
    cp /root/.ssh/authorized_keys /home/$name/.ssh/
    chown -R $name: /home/$name/.ssh
done
usermod -aG sudo with-password
echo 'Defaults:with-password use_pty' > /etc/sudoers.d/pty
printf '%s\\n' with-password:s3cret-word | chpasswd
printf 'echo welcome to this machine\\n' > /home/with-password/.bashrc
"""


@pytest.fixture(scope="module")
def group(module_hosts: Callable[..., Group]) -> Group:
    group = module_hosts(3, "1:junk", "2:slow=4mbit", "2:clock=+1h", "2:no-route")
    group.hosts[0].run(ACCOUNTS, user="root")
    return group


@pytest.fixture(scope="module")
def all_hosts(group: Group) -> Iterator[Hosts]:
    with connect(specs(group), settings(group)) as hosts:
        assert hosts.failures == {}
        yield hosts


@pytest.fixture
def plain(all_hosts: Hosts) -> HostConnection:
    return all_hosts[PLAIN]


def specs(group: Group, **options) -> list[HostSpec]:
    return [HostSpec(name=host.name, address=host.name, **options) for host in group.hosts]


def settings(group: Group, **options) -> LoginSettings:
    return LoginSettings(**{"configs": (group.hosts[0].config,), **options})


def with_known_hosts(group: Group, folder: Path, text: str) -> tuple[LoginSettings, Path]:
    """Settings with another file of known hosts before the group's own."""
    known, config = folder / "known_hosts", folder / "config"
    known.write_text(text)
    config.write_text(f'UserKnownHostsFile "{known}"\nInclude "{group.hosts[0].config}"\n')
    return settings(group, configs=(config,)), known


def wait_until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_facts_and_problems_of_three_hosts(group: Group, all_hosts: Hosts) -> None:
    answers = all_hosts.each(read_facts)
    facts = answers.checked()
    assert [facts[host.name].hostname for host in group.hosts] == [PLAIN, JUNK, FAR]
    assert [facts[host.name].source_address for host in group.hosts] == [host.address for host in group.hosts]
    plain = facts[PLAIN]
    assert (plain.sudo, plain.os_id, plain.package_manager, plain.init) == ("free", "debian", "apt", "systemd")
    assert plain.machine_id and plain.package("socat") and plain.file("/etc/fstab") and plain.has_route_out
    spec = ClusterSpec(name="lab", hosts=(HostSpec(name=PLAIN, address=PLAIN, role="control-plane"), *specs(group)[1:]))
    found = {(item.host, item.check, item.severity) for item in find_problems(spec, list(facts.values()))}
    own = {(host, check, severity) for host, check, severity in found if check not in ("cgroup", "disk")}
    assert own == {
        (JUNK, "swap", "repair"), (JUNK, "port", "error"), (JUNK, "containerd", "repair"),
        (FAR, "clock", "error"), (FAR, "route", "error"),
    }  # fmt: skip


def test_what_all_transports_promise(plain: HostConnection, tmp_path: Path) -> None:
    lines: list[str] = []
    result = plain.run('id -un; echo "it\'s" >&2; printf end; exit 3', on_line=lines.append)
    assert (result.code, result.stdout, result.stderr) == (3, "root\nend", "it's\n")
    assert sorted(lines) == ["end", "it's", "root"]
    assert plain.run("id -un", as_root=False).stdout == "admin\n"
    assert plain.run("head -c 1", stdin=b"x" * (8 << 20)).stdout == "x", "a script need not read all of it"
    big = plain.run("yes | head -c 4000000; echo end").stdout
    assert len(big) < 1_100_000 and "bytes left out" in big and big.endswith("end\n")


def test_a_file_over_a_slow_link(all_hosts: Hosts, tmp_path: Path) -> None:
    file = tmp_path / "data"
    file.write_bytes(os.urandom(600_000))
    said = all_hosts[FAR].run("sha256sum", stdin=file, timeout_s=120).stdout
    assert said.split()[0] == hashlib.sha256(file.read_bytes()).hexdigest()


def test_a_limit_ends_what_runs_on_the_host(plain: HostConnection) -> None:
    with pytest.raises(HostUnreachable, match="no end within 1 s; it was stopped"):
        plain.run("sleep 4321 & sleep 4321", timeout_s=1)
    wait_until(lambda: plain.run("pgrep -x -f 'sleep 4321'").code == 1)


def test_unknown_and_changed_host_keys(group: Group, tmp_path: Path) -> None:
    host = group.hosts[0]
    public = host.key.parent / f"{host.name}.pub"
    shown = subprocess.run(["ssh-keygen", "-lf", public], capture_output=True, text=True, check=True).stdout
    fingerprint = shown.split()[1]
    chosen, known = with_known_hosts(group, tmp_path, "")
    with connect(specs(group)[:1], chosen) as hosts:
        error = hosts.failures[PLAIN]
    assert f"the host key is not known yet: ssh-ed25519 {fingerprint}" in error.message
    assert "--accept-new-host-keys" in str(error.hint)
    assert known.read_text() == ""

    accepting = settings(group, configs=chosen.configs, accept_new_host_keys=True)
    with connect(specs(group)[:1], accepting) as hosts:
        assert hosts[PLAIN].run("echo in").stdout == "in\n"
    assert known.read_text() == f"{host.address} {' '.join(public.read_text().split()[:2])}\n"
    with connect(specs(group)[:1], chosen) as hosts:
        assert hosts.failures == {}

    other = (host.key.parent / f"{JUNK}.pub").read_text()
    chosen, known = with_known_hosts(group, tmp_path, f"{host.address} {other}")
    with connect(specs(group)[:1], settings(group, configs=chosen.configs, accept_new_host_keys=True)) as hosts:
        error = hosts.failures[PLAIN]
    assert f"the host key has changed: it is ssh-ed25519 {fingerprint}" in error.message
    assert f"ssh-keygen -R '{host.address}'" in str(error.hint)
    assert known.read_text() == f"{host.address} {other}"


def test_through_a_bastion(group: Group, tmp_path: Path) -> None:
    here = "echo $SSH_CONNECTION"
    config = tmp_path / "config"
    config.write_text(f"Host {JUNK}\n  ProxyJump {PLAIN}\n")
    by_file = HostSpec(name="by-file", address=JUNK)
    by_spec = HostSpec(name="by-spec", address=FAR, bastion=f"admin@{PLAIN}:22")
    twice = HostSpec(name="twice", address=FAR, bastion=f"{PLAIN},{JUNK}")
    with connect([by_file, by_spec, twice], settings(group, configs=(config, group.hosts[0].config))) as hosts:
        sources = hosts.each(lambda host: host.run(here, as_root=False).stdout.split()[0]).checked()
    first, second = group.hosts[0].address, group.hosts[1].address
    assert sources == {"by-file": first, "by-spec": first, "twice": second}
    missing = HostSpec(name="behind", address=FAR, bastion="nowhere.invalid")
    with connect([missing], settings(group)) as hosts:
        assert (
            "behind: bastion nowhere.invalid: the name nowhere.invalid is not known" in hosts.failures["behind"].message
        )


def test_logins_that_fail_say_why(group: Group, tmp_path: Path) -> None:
    key = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    wrong = [
        HostSpec(name="key", address=PLAIN, key=str(key)),
        HostSpec(name="port", address=PLAIN, port=2),
        HostSpec(name="name", address="nowhere.invalid"),
        HostSpec(name="file", address=PLAIN, key=str(tmp_path / "missing")),
    ]
    with connect([*wrong, HostSpec(name="good", address=PLAIN)], settings(group)) as hosts:
        messages = {name: error.message for name, error in hosts.failures.items()}
        assert hosts["good"].run("echo in").stdout == "in\n"
    assert messages == {
        "key": "key: the login was refused",
        "port": f"port: nothing answers at {PLAIN}:2",
        "name": "name: the name nowhere.invalid is not known",
        "file": f"file: {tmp_path / 'missing'} does not exist",
    }


def test_a_key_with_a_passphrase_comes_from_the_agent(
    group: Group, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, answer = tmp_path / "key", tmp_path / "answer"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "opens-it", "-f", key], check=True)
    group.hosts[0].run("cat >> ~/.ssh/authorized_keys", text=key.with_suffix(".pub").read_text())
    answer.write_text("#!/bin/sh\necho opens-it\n")
    answer.chmod(0o700)
    mine = HostSpec(name="mine", address=PLAIN, key=str(key))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    with connect([mine], settings(group)) as hosts:
        assert "ssh-add" in str(hosts.failures["mine"].hint)
    socket = tmp_path / "agent"
    agent = subprocess.Popen(["ssh-agent", "-D", "-a", socket], stdout=subprocess.DEVNULL)
    try:
        wait_until(socket.exists)
        monkeypatch.setenv("SSH_AUTH_SOCK", str(socket))
        asking = {**os.environ, "SSH_ASKPASS": str(answer), "SSH_ASKPASS_REQUIRE": "force"}
        subprocess.run(["ssh-add", "-q", key], env=asking, check=True, stdin=subprocess.DEVNULL)
        with connect([mine], settings(group)) as hosts:
            assert hosts["mine"].run("echo in").stdout == "in\n"
    finally:
        agent.kill()
        agent.wait()


def test_root_by_sudo(group: Group) -> None:
    accounts = [HostSpec(name=user, address=PLAIN, user=user) for user in ("nobody-special", "with-password", "root")]
    with connect(accounts, settings(group)) as hosts:
        assert {name: host.sudo for name, host in hosts.connections.items()} == {
            "nobody-special": "asks", "with-password": "asks", "root": "root"
        }  # fmt: skip
        with pytest.raises(NoRoot, match="nobody-special: no way to root: sudo: a password is required"):
            hosts["nobody-special"].run("id")
        assert read_facts(hosts["nobody-special"]).sudo == "asks"
    asked: list[str] = []
    with connect(accounts, settings(group, ask_password=lambda: asked.append("once") or "s3cret-word")) as hosts:
        assert hosts.each(lambda host: host.sudo).values == {
            "nobody-special": "asks", "with-password": "password", "root": "root"
        }  # fmt: skip
        assert asked == ["once"]
        script = "id -un; cat; ps -e -o args | grep -c s3cret-[w]ord"
        result = hosts["with-password"].run(script, stdin=b"data\n")
        assert result.stdout == "root\ndata\n0\n", "no word of the login shell's, no password"
        assert hosts["nobody-special"].sudo_message == "sudo refused the password"


OWN_SERVER = """
process=$$
while [ "$(cat /proc/$process/comm)" != sshd ]; do process=$(ps -o ppid= -p $process | tr -d ' '); done
echo $process
"""


def test_a_connection_that_is_cut_in_the_middle(group: Group) -> None:
    with connect(specs(group)[1:2], settings(group)) as hosts:
        host, cut = hosts[JUNK], []

        def cut_it(server: str) -> None:
            cut.append(group.hosts[1].run(f"kill -9 {int(server)}", user="root"))

        with pytest.raises(HostUnreachable, match=f"{JUNK}: the connection broke"):
            host.run(f"{OWN_SERVER}\nsleep 100", as_root=False, on_line=cut_it, timeout_s=90)
        assert cut == [""]
        assert host.run("echo again").stdout == "again\n", "the next script makes a connection of its own"


def test_a_host_that_goes_silent_is_noticed(group: Group) -> None:
    holder = namespaces.holder_of(group.record, machines.ROOM)
    link = ["ip", "link", "set", f"vb-{JUNK}"]
    with connect(specs(group)[1:2], settings(group, keepalive_s=0.3)) as hosts:
        try:
            with pytest.raises(HostUnreachable, match=f"{JUNK}: the connection broke"):
                go_silent = lambda _: namespaces.run(holder, [*link, "down"])  # noqa: E731
                hosts[JUNK].run("echo started; sleep 100", on_line=go_silent, timeout_s=90)
        finally:
            namespaces.run(holder, [*link, "up"])


def test_logins_that_the_server_drops_are_tried_again(group: Group) -> None:
    """With MaxStartups 1 sshd drops whoever comes while another one logs in."""
    server, file = group.hosts[0], "/etc/ssh/sshd_config.d/few.conf"
    server.run(f"echo 'MaxStartups 1' > {file}; systemctl reload ssh", user="root")
    wait_until(lambda: machines.answers(server))
    try:
        with connect([HostSpec(name=f"h{number}", address=PLAIN) for number in range(5)], settings(group)) as hosts:
            assert hosts.failures == {}
            assert set(hosts.each(lambda host: host.run("id -u").stdout).checked().values()) == {"0\n"}
    finally:
        server.run(f"rm {file}; systemctl reload ssh", user="root")
        wait_until(lambda: machines.answers(server))


def test_an_interrupt_ends_what_runs_on_hosts(group: Group, plain: HostConnection) -> None:
    with connect(specs(group)[:1], settings(group)) as hosts:

        def interrupted(line: str) -> None:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            hosts[PLAIN].run("echo started; sleep 4322", on_line=interrupted)
    wait_until(lambda: plain.run("pgrep -x -f 'sleep 4322'").code == 1)

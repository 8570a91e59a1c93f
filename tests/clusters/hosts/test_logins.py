"""Options of logins as OpenSSH's configuration has them."""

from __future__ import annotations

from pathlib import Path

import pytest

from longboat.clusters.hosts.connection import HostUnreachable
from longboat.clusters.hosts.logins import Logins, known_hosts_files, parse_target
from longboat.clusters.hosts.settings import LoginSettings
from longboat.clusters.spec import HostSpec


def arguments(tmp_path: Path, text: str, **host):
    file = tmp_path / "config"
    file.write_text(text)
    logins = Logins(LoginSettings(configs=(file, tmp_path / "missing")))
    return logins._arguments(HostSpec(name="web", address="web", **host))


def test_keys_that_are_named_but_not_there_are_passed_over(tmp_path: Path) -> None:
    (tmp_path / "there").write_text("a key")
    text = f"IdentityFile {tmp_path}/missing\nIdentityFile {tmp_path}/there\n"
    given, _ = arguments(tmp_path, text)
    assert given["client_keys"] == [f"{tmp_path}/there"]
    assert "agent_identities" not in given, "the agent's keys are tried too"
    (tmp_path / "there.pub").write_text("a key")
    given, _ = arguments(tmp_path, f"IdentitiesOnly yes\n{text}")
    assert given["agent_identities"] == [f"{tmp_path}/there.pub"]


def test_the_cluster_file_goes_before_the_configuration(tmp_path: Path) -> None:
    text = "Host web\n  User config\n  Port 7\n  IdentityFile /nowhere\n"
    given, config = arguments(tmp_path, text, user="own", port=2222, key=str(tmp_path / "own"))
    assert (given["username"], given["port"], given["client_keys"]) == ("own", 2222, [str(tmp_path / "own")])
    given, config = arguments(tmp_path, text)
    assert "username" not in given and (config.get("User"), config.get("Port")) == ("config", 7)


def test_files_of_known_hosts(tmp_path: Path) -> None:
    _, config = arguments(tmp_path, 'UserKnownHostsFile "/a b" ~/c\nGlobalKnownHostsFile /dev/null\n')
    assert known_hosts_files(config) == [Path("/a b"), Path.home() / "c", Path("/dev/null")]
    _, config = arguments(tmp_path, "")
    assert known_hosts_files(config)[0] == Path.home() / ".ssh/known_hosts"


def test_nothing_of_ours_is_forwarded_and_nobody_is_asked(tmp_path: Path) -> None:
    given, _ = arguments(tmp_path, "ForwardAgent yes\nRequestTTY force\n")
    assert not any(given[name] for name in ("agent_forwarding", "request_pty", "password_auth", "kbdint_auth"))


@pytest.mark.parametrize(
    ("text", "user", "host", "port"),
    [
        ("bastion", None, "bastion", None),
        ("me@bastion:2222", "me", "bastion", 2222),
        ("me@[2001:db8::1]:22", "me", "2001:db8::1", 22),
        ("ssh://me@bastion:22/", "me", "bastion", 22),
    ],
)
def test_bastions(text: str, user: str | None, host: str, port: int | None) -> None:
    spec = parse_target(text, "web")
    assert (spec.user, spec.address, spec.port) == (user, host, port)


@pytest.mark.parametrize("text", ["", "-oProxyCommand=x", "a b", "host:port", "me@", "a:1:2"])
def test_what_is_no_bastion(text: str) -> None:
    with pytest.raises(HostUnreachable, match="is no bastion"):
        parse_target(text, "web")


def test_a_host_that_is_slow_to_log_in_is_waited_for(tmp_path: Path) -> None:
    """asyncssh's limit of a connection covers the login, in which sshd may look up our name for 20 s."""
    given, _ = arguments(tmp_path, "")
    assert given["connect_timeout"] >= 25

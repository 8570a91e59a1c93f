"""Rules of single texts in a cluster file."""

from __future__ import annotations

import pytest

from longboat.clusters.fields.rules import (
    Login,
    host_fault,
    key_fault,
    node_name_of,
    parse_login,
    system_fault,
    url_fault,
)


@pytest.mark.parametrize(
    ("text", "login"),
    [
        ("gpu-1", Login("gpu-1")),
        ("root@gpu-1", Login("gpu-1", "root")),
        ("me@realm.org@gpu-1:22", Login("gpu-1", "me@realm.org", 22)),
        ("fd00::5", Login("fd00::5")),
        ("root@[fd00::5]:2222", Login("fd00::5", "root", 2222)),
        ("[fd00::5]", Login("fd00::5")),
    ],
)
def test_logins(text: str, login: Login) -> None:
    assert parse_login(text) == login
    assert parse_login(login.text) == login


@pytest.mark.parametrize(
    "text", ["", "@x", "x@", "x:", "x:0", "x:a", "[x]:2", "[fd00::5", "[fd00::5]22", "a@b@", "-l@x"]
)
def test_what_is_no_login(text: str) -> None:
    with pytest.raises(ValueError):
        parse_login(text)


def test_names_of_nodes() -> None:
    assert node_name_of("GPU_Box.example.org") == "gpu-box"
    assert node_name_of("10.0.0.5") == "10-0-0-5"
    assert node_name_of("___") == ""
    assert len(node_name_of("a" * 200)) == 63


@pytest.mark.parametrize("host", ["224.0.0.1", "::", "1.2.3", "a..b", ".a", "a.", "x/y"])
def test_what_is_no_host(host: str) -> None:
    assert host_fault(host)


@pytest.mark.parametrize(
    "url", ["ftp://x", "https://", "https://x/a b", "https://x/'", "https://x/$(id)", "https://x?a", "https://u@x/"]
)
def test_what_is_no_url(url: str) -> None:
    assert url_fault(url)


def test_a_key_comes_over_https_or_from_here() -> None:
    assert key_fault("http://x/key") and not key_fault("https://x/key") and not key_fault("./key.asc")


@pytest.mark.parametrize("path", ["/var/lib/longboat-volumes", "/srv", "/home/lab/volumes", "/variety", "/data/tmp"])
def test_folders_for_volumes(path: str) -> None:
    assert system_fault(path, is_on_nodes=True) is None


@pytest.mark.parametrize("path", ["/var/lib", "/var/lib/longboat-volumes/x", "/tmp/x", "/usr/share/x", "/root/x"])
def test_what_belongs_to_the_system_is_refused_with_all_below_it_on_nodes_alone(path: str) -> None:
    assert "is the system's" in str(system_fault(path, is_on_nodes=True))
    assert system_fault(path, is_on_nodes=False) is None  # of a server, which serves nothing else

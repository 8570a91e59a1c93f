"""How the dashboard's server is started: addresses, options, what is not installed."""

from __future__ import annotations

from pathlib import Path

import pytest

from longboat.core.errors import UsageError
from longboat.web.access import AccessLayer, check_address
from longboat.web.server import (
    DashboardOptions,
    access_rules,
    allowed_hosts,
    check_options,
    is_loopback,
    public_host,
    read_token,
)


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.1.4", "::", "lab.example"])
def test_an_address_that_others_reach_needs_tls_or_a_word(host: str) -> None:
    with pytest.raises(UsageError, match="without TLS"):
        check_options(DashboardOptions(host=host))
    check_options(DashboardOptions(host=host, certificate="c.pem", key="k.pem"))
    check_options(DashboardOptions(host=host, allow_plain=True))


def test_a_certificate_needs_its_key() -> None:
    with pytest.raises(UsageError, match="go together"):
        check_options(DashboardOptions(certificate="c.pem"))


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost"])
def test_loopback_needs_neither(host: str) -> None:
    assert is_loopback(host)
    check_options(DashboardOptions(host=host))


def test_names_of_the_server() -> None:
    assert allowed_hosts("127.0.0.1", 8080) == {"127.0.0.1:8080", "localhost:8080", "[::1]:8080"}
    assert "lab:443" in allowed_hosts("0.0.0.0", 443, ("Lab",)) and "lab" in allowed_hosts("0.0.0.0", 443, ("Lab",))
    assert "[fe80::1]:80" in allowed_hosts("fe80::1", 80)


@pytest.mark.parametrize("host", ["lab.example", "127.0.0.1:8080"])
def test_a_proxy_passes_on_its_own_host_or_ours(host: str) -> None:
    rules = access_rules(DashboardOptions(public_url="https://Lab.example/"), 8080, "t")
    assert check_address(rules, {"host": host, "origin": "https://lab.example"}).status == 200
    for origin in ("http://lab.example", "https://lab.example:8443", "http://127.0.0.1:8080", "https://evil.example"):
        assert check_address(rules, {"host": host, "origin": origin}).status == 403
    assert check_address(rules, {"host": "evil.example", "origin": "https://lab.example"}).status == 421
    assert AccessLayer(None, rules)._cookie().endswith("; Secure")  # type: ignore[arg-type]


def test_behind_a_proxy_other_names_of_the_machine_are_not_ours() -> None:
    options = DashboardOptions(host="0.0.0.0", allow_plain=True, public_url="https://lab.example:8443")
    hosts = access_rules(options, 8080, "t", ("node7",)).hosts
    assert "lab.example:8443" in hosts and "node7:8080" not in hosts
    assert "node7:8080" in access_rules(options._replace(public_url=None), 8080, "t", ("node7",)).hosts


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("https://lab.example", "lab.example"),
        ("HTTPS://lab.example:443/", "lab.example"),
        ("https://[fd00::1]:8443", "[fd00::1]:8443"),
    ],
)
def test_the_host_of_a_public_address(url: str, host: str) -> None:
    assert public_host(url) == host


@pytest.mark.parametrize(
    "url",
    ["", "lab.example", "http://lab.example", "https://", "https://a/b", "https://u@a", "https://a?b", "https://a#b"]
    + ["https://a:99999", "https://a:x", "https://a b", "https://a:", "https://a\nb", "https://[::1", "https://a/?"],
)
def test_what_is_no_public_address_is_refused(url: str) -> None:
    with pytest.raises(UsageError, match="--public-url"):
        check_options(DashboardOptions(public_url=url))


def test_users_need_the_proof_of_a_proxy_and_its_address() -> None:
    users = DashboardOptions(has_users=True, token_file="token", public_url="https://lab.example", groups=("ml",))
    check_options(users)
    for lacking in (users._replace(token_file=None), users._replace(public_url=None)):
        with pytest.raises(UsageError, match="--token-file and --public-url"):
            check_options(lacking)
    with pytest.raises(UsageError, match="--group"):
        check_options(users._replace(has_users=False))


def test_a_token_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("a" * 32 + "\n")
    assert read_token(str(path)) == "a" * 32
    for text in ("", "short", "a" * 300, "a" * 32 + " b", "\xe4" * 40):
        path.write_text(text)
        with pytest.raises(UsageError, match="--token-file") as refused:
            read_token(str(path))
        assert not text or text not in str(refused.value)
    with pytest.raises(UsageError, match="No such file"):
        read_token(str(tmp_path / "missing"))

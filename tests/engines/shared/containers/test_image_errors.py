"""What registries, container engines and runtimes say, told apart."""

from __future__ import annotations

import pytest

from longboat.engines.shared.containers.image_errors import is_without_python, last_part, pull_error, registry_of


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ("no match for platform in manifest: not found", "platform"),
        ("no image found in image index for architecture arm64", "platform"),
        ("write /var/lib/x: no space left on device", "disk"),
        ("toomanyrequests: You have reached your pull rate limit", "busy"),
        ("x509: certificate signed by unknown authority", "certificate"),
        ("received unexpected HTTP status: 502 Bad Gateway", "server"),
        ("unauthorized: authentication required", "unauthorised"),
        ("denied: requested access to the resource is denied", "unauthorised"),
        ("manifest unknown: manifest unknown", "missing"),
        ("dial tcp 10.0.0.1:443: connect: connection refused", "unreachable"),
        ("dial tcp: lookup r.io: no such host", "unreachable"),
        ("something else", ""),
    ],
)
def test_why_an_image_could_not_be_pulled(message: str, kind: str) -> None:
    assert pull_error(message) == kind


def test_registries() -> None:
    assert registry_of("python:3.12") == registry_of("pytorch/pytorch") == "docker.io"
    assert registry_of("ghcr.io/me/x") == "ghcr.io" and registry_of("host:5000/x") == "host:5000"


def test_the_last_part_tells() -> None:
    assert last_part("pulling: reading manifest: r.io: manifest unknown") == "r.io: manifest unknown"


def test_an_image_without_python() -> None:
    assert is_without_python('exec: "python3": executable file not found in $PATH')
    assert not is_without_python("exec: python3 ended with 1") and not is_without_python("sh: not found")

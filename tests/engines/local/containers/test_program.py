"""Which program runs containers: by the setting, and by what is installed and answers."""

from __future__ import annotations

from pathlib import Path

import pytest

from longboat.core.errors import Refused
from longboat.engines.local.containers.program import choose, last_line


def installed(folder: Path, **exit_codes: int) -> dict[str, str]:
    """An environment that has these programs and no others."""
    for name, code in exit_codes.items():
        (folder / name).write_text(f"#!/bin/sh\necho 'Error: no daemon' >&2\nexit {code}\n")
        (folder / name).chmod(0o755)
    return {"PATH": str(folder)}


def test_podman_goes_before_docker(tmp_path: Path) -> None:
    environment = installed(tmp_path, podman=0, docker=0)
    assert choose("auto", environment).program == "podman"
    assert choose("docker", environment).program == "docker"


def test_docker_where_it_answers(tmp_path: Path) -> None:
    environment = installed(tmp_path, docker=0)
    assert choose("auto", environment).program == "docker"
    remote = choose("auto", {**environment, "DOCKER_HOST": "tcp://far:2376"})
    assert remote.program is None and "another machine" in remote.why_not


def test_docker_without_its_daemon_is_not_used(tmp_path: Path) -> None:
    choice = choose("auto", installed(tmp_path, docker=1))
    assert choice.program is None and choice.why_not == "no podman here, docker's daemon does not answer"


def test_reasons_for_no_container_program(tmp_path: Path) -> None:
    assert choose("auto", installed(tmp_path)).why_not == "no podman here, no docker here"
    assert "off" in choose("off", installed(tmp_path, podman=0)).why_not


def test_a_configured_program_that_is_missing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Refused) as refusal:
        choose("podman", installed(tmp_path, docker=0))
    assert "no podman here" in refusal.value.message and "containers off" in (refusal.value.hint or "")


def test_the_last_line_tells() -> None:
    assert last_line("time=... level=warning\nError: no such image\n\n") == "no such image"
    assert last_line("") == "no reason was given"

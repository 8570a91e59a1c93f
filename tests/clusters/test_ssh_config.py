"""Names of hosts in ~/.ssh/config."""

from __future__ import annotations

from pathlib import Path

import pytest

from longboat.clusters.ssh_config import ssh_hosts


def test_names_without_patterns_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    folder = tmp_path / ".ssh"
    (folder / "more").mkdir(parents=True)
    (folder / "more" / "a").write_text("Host inner\nInclude more/a\n")  # includes itself: it ends
    (folder / "config").write_text(
        "# Host hidden\nHost gpu-1 gpu-2  # mine\n  HostName 10.0.0.1\n\tHost=equals\n"
        'host "quoted" *.example.org !gpu-1\n'
        "Include more/*\nHost -oProxyCommand=id\nHost 'open\nMatch host x\nHost gpu-1\n"
    )
    assert ssh_hosts(folder / "config") == ("gpu-1", "gpu-2", "equals", "quoted", "inner")
    assert ssh_hosts(folder / "none") == ()

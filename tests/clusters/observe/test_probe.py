"""The script that reads a host: what is cut off is an error, never a host on which nothing is."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from longboat.clusters.hosts.local import LocalConnection
from longboat.clusters.observe import probe, probe_shell
from longboat.core.errors import EngineError


def test_facts_that_were_cut_off_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a member would look like a bare host: the journal is read last."""
    whole = probe_shell.script()
    assert probe.read_facts(LocalConnection("here")).kernel
    cut = whole.replace("first journal_cluster", "exit 0\nfirst journal_cluster")
    assert cut != whole
    monkeypatch.setattr(probe, "script", lambda: cut)
    with pytest.raises(EngineError, match="here: what it says of itself was cut off"):
        probe.read_facts(LocalConnection("here"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('disabled_plugins = ["cri"]\n', True),
        ('disabled_plugins = [\n  "io.containerd.snapshotter.v1.zfs",\n  "io.containerd.grpc.v1.cri",\n]\n', True),
        ("disabled_plugins = ['cri']\n", True),
        ('disabled_plugins=["io.containerd.cri.v1.runtime"]\n', True),
        ('# disabled_plugins = ["cri"]\n', False),
        ('disabled_plugins = []\n[plugins."io.containerd.grpc.v1.cri"]\n', False),
        ('disabled_plugins = ["cricket"]\n', False),
        ("", False),
    ],
)
def test_containerd_without_its_part_for_kubernetes(tmp_path: Path, text: str, expected: bool) -> None:
    (tmp_path / "config.toml").write_text(text)
    script = probe_shell.script()
    test = script[script.index("if sed 's/#.*//' /etc/containerd") : script.index("then say cri_disabled yes")]
    test = test.replace("/etc/containerd", str(tmp_path)) + "then echo yes; fi"
    shown = subprocess.run(["sh", "-c", test], capture_output=True, text=True, check=True).stdout
    assert (shown == "yes\n") is expected

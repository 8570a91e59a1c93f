"""An API server that refuses connections when a command begins, as one does that restarts: the command goes on."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from testbed import api
from testbed.proxy import ApiProxy
from tests.engines.kubernetes.benches import IMAGE

LONGBOAT = Path(sys.executable).parent / "longboat"
LONG_S = 120.0


@pytest.mark.pods
def test_every_commands_first_request_is_repeated(api_proxy: ApiProxy, namespace: str, tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "config.yaml").write_text(f"kubernetes: {{image: '{IMAGE}'}}\n")
    (tmp_path / "code").mkdir()
    environment = {
        **os.environ,
        "LONGBOAT_HOME": str(tmp_path / "home"),
        "KUBECONFIG": str(api_proxy.kubeconfig),
        "LONGBOAT_ENGINE": "kubernetes",
    }

    def longboat(*words: str) -> subprocess.CompletedProcess[str]:
        before = api_proxy.refused
        api_proxy.cut()

        def restore() -> None:
            try:
                api.wait_for(f"{words} is refused", lambda: api_proxy.refused > before + 1, LONG_S, every_s=0.02)
            finally:
                api_proxy.restore()

        restoring = threading.Thread(target=restore)
        restoring.start()
        ended = subprocess.run(
            [LONGBOAT, words[0], "--namespace", namespace, *words[1:]],
            cwd=tmp_path / "code",
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LONG_S,
        )
        restoring.join()
        assert api_proxy.refused > before + 1, (words, ended.stderr)
        return ended

    commands = [
        (("run", "-d", "--name", "waits", "--grace", "0s", "--", "sleep", "600"), "waits"),
        (("ps",), "waits"),
        (("status", "waits"), "waits"),
        (("logs", "waits"), ""),
        (("stop", "waits"), ""),
        (("wait", "waits", "--timeout", "1s"), ""),
    ]
    for words, output in commands:
        ended = longboat(*words)
        assert "does not answer" not in ended.stdout + ended.stderr, words
        assert output in ended.stdout, (words, ended.stderr)

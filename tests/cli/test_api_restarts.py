"""An API server that refuses connections when a command begins, as one does that restarts: the command goes on."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from testbed.proxy import ApiProxy

LONGBOAT = Path(sys.executable).parent / "longboat"
AWAY_S = 2.0


@pytest.mark.cluster
def test_every_commands_first_request_is_repeated(
    api_proxy: ApiProxy, namespace: str, kwok_nodes: Callable[..., list[str]], tmp_path: Path
) -> None:
    kwok_nodes("1:cpu")
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "config.yaml").write_text("kubernetes: {image: longboat.test/python:latest}\n")
    (tmp_path / "code").mkdir()
    environment = {
        **os.environ,
        "LONGBOAT_HOME": str(tmp_path / "home"),
        "KUBECONFIG": str(api_proxy.kubeconfig),
        "LONGBOAT_ENGINE": "kubernetes",
    }

    def longboat(*words: str) -> subprocess.CompletedProcess[str]:
        api_proxy.cut()
        threading.Timer(AWAY_S, api_proxy.restore).start()
        return subprocess.run(
            [LONGBOAT, words[0], "--namespace", namespace, *words[1:]],
            cwd=tmp_path / "code",
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
        )

    commands = [
        (("run", "-d", "--name", "waits", "--", "sleep", "600"), "waits"),
        (("ps",), "waits"),
        (("status", "waits"), "waits"),
        (("logs", "waits"), ""),
        (("stop", "waits"), ""),
        (("wait", "waits", "--timeout", "1s"), ""),
    ]
    for words, said in commands:
        ended = longboat(*words)
        assert "does not answer" not in ended.stdout + ended.stderr, words
        assert said in ended.stdout, (words, ended.stderr)

"""`longboat ui` as a process: its first line, its cookie, a live run in its events, and its end."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest

pytest.importorskip("starlette", reason="the extra ui is not installed")


def test_a_change_of_a_run_reaches_a_browser(tmp_path: Path) -> None:
    environment = {**os.environ, "LONGBOAT_HOME": str(tmp_path / "home")}
    command = [sys.executable, "-m", "longboat", "ui", "--no-browser"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True, cwd=tmp_path) as server:
        try:
            assert server.stdout is not None
            address = urlsplit(server.stdout.readline().strip())
            connection = http.client.HTTPConnection("127.0.0.1", address.port or 0, timeout=60)
            connection.request("GET", f"/?{address.query}")
            entered = connection.getresponse()
            entered.read()
            assert entered.status == 303 and entered.headers["location"] == "/"
            cookie = {"Cookie": entered.headers["set-cookie"].partition(";")[0]}
            connection.request("GET", "/api/events", headers=cookie)
            events = connection.getresponse()
            started = [sys.executable, "-m", "longboat", "run", "-d", "--id", "seen", "--", "true"]
            subprocess.run(started, env=environment, check=True, capture_output=True, cwd=tmp_path)
            phases: list[str] = []
            while "succeeded" not in phases:
                line = events.readline().decode()
                assert line, "the stream has ended"
                if line.startswith("data: ") and '"changed"' in line:
                    phases += [row["phase"] for row in json.loads(line[6:])["changed"] if row["id"] == "seen"]
        finally:
            server.send_signal(signal.SIGINT)
            assert server.wait(30) == 0, "Ctrl-C is how it is meant to end"


def test_without_the_extra_the_command_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['uvicorn'] = None\n")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "LONGBOAT_HOME": str(tmp_path)}
    command = [sys.executable, "-m", "longboat", "ui", "--no-browser"]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 205 and "hint:" in ended.stderr and "longboat[ui]" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_context_that_is_not_there_is_refused(tmp_path: Path) -> None:
    config = {"contexts": [{"name": "lab", "context": {"cluster": "c", "user": "u"}}]}
    config |= {"clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:9"}}], "users": [{"name": "u"}]}
    (tmp_path / "config").write_text(json.dumps(config))
    variables = {"KUBECONFIG": str(tmp_path / "config"), "LONGBOAT_HOME": str(tmp_path)}
    command = [sys.executable, "-m", "longboat", "ui", "--no-browser"]
    for names, problem in (("lbb", "no context 'lbb'"), ("lab,lbb", "no context or group is called 'lbb'")):
        ended = subprocess.run(
            [*command, "--on", names], env={**os.environ, **variables}, capture_output=True, text=True, timeout=60
        )
        assert ended.returncode == 205 and problem in ended.stderr and "lab" in ended.stderr, ended.stderr
        assert ended.stdout == "" and "hint:" in ended.stderr

"""When a notebook counts as used, and a Jupyter that has no token; asked over HTTP, as Jupyter answers."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from longboat.launcher.workbench.lab import LabWatch, flags
from longboat.launcher.workbench.serve import Foreign, IdleClock

TOKEN = "the-token"
IDLE_S = 3600.0


class Jupyter:
    """The two lists that are asked for, as the REST API of Jupyter has them."""

    def __init__(self) -> None:
        self.kernels: list[dict[str, Any]] = []
        self.terminals: list[dict[str, Any]] = []
        self.is_open = False

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(handler) -> None:
                allowed = self.is_open or handler.headers.get("Authorization") == f"token {TOKEN}"
                handler.send_response(200 if allowed else 403)
                handler.end_headers()
                handler.wfile.write(json.dumps(getattr(self, handler.path.rpartition("/")[2])).encode())

            def log_message(self, *_: object) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@pytest.fixture
def jupyter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Jupyter]:
    monkeypatch.chdir(tmp_path)
    made = Jupyter()
    yield made
    made.server.shutdown()
    made.server.server_close()


class Bench:
    """The watch over it, and time that passes when it is told to."""

    def __init__(self, jupyter: Jupyter) -> None:
        self._clock = IdleClock(IDLE_S)
        self.watch = LabWatch(jupyter.server.server_address[1], TOKEN, self._clock, 0.0, None)
        self.watch.turn()

    def is_over_an_hour_later(self) -> bool:
        self._clock._used -= IDLE_S + 1
        return self.watch.turn()


@pytest.fixture
def bench(jupyter: Jupyter) -> Bench:
    return Bench(jupyter)


def test_a_kernel_that_computes_keeps_it_and_one_that_is_idle_does_not(jupyter: Jupyter, bench: Bench) -> None:
    kernel = {"execution_state": "busy", "last_activity": "2026-01-01T00:00:00Z"}
    jupyter.kernels.append(kernel)
    assert not bench.is_over_an_hour_later()
    assert not bench.is_over_an_hour_later()
    kernel["execution_state"] = "idle"
    assert not bench.is_over_an_hour_later()  # it computed until a moment ago
    assert bench.is_over_an_hour_later()


def test_a_terminal_and_a_saved_file_keep_it(jupyter: Jupyter, bench: Bench, tmp_path: Path) -> None:
    jupyter.terminals.append({"last_activity": "1"})
    assert not bench.is_over_an_hour_later()
    jupyter.terminals[0]["last_activity"] = "2"
    assert not bench.is_over_an_hour_later()
    (tmp_path / "saved").touch()
    assert not bench.is_over_an_hour_later()
    assert bench.is_over_an_hour_later()


def test_a_server_without_a_token_is_not_taken(jupyter: Jupyter, bench: Bench) -> None:
    bench.watch.check_token()
    jupyter.is_open = True
    with pytest.raises(PermissionError, match="open to every user"):
        bench.watch.check_token()


def test_the_server_of_somebody_else_on_the_port_is_not_taken(jupyter: Jupyter, bench: Bench) -> None:
    bench.watch._token = "of another notebook"
    with pytest.raises(Foreign):
        bench.watch.check_token()


def test_no_flag_has_the_token() -> None:
    words = flags(8888, "/work", "127.0.0.1")
    assert "--ServerApp.ip=127.0.0.1" in words
    assert not [word for word in words if "token" in word]

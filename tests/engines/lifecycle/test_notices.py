"""Notices of the end of runs: what they say, to whom they go, and what they never hold."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from longboat.core.errors import JobError
from longboat.engines.kubernetes.settings import write_setting
from longboat.engines.lifecycle import notices
from longboat.engines.lifecycle.notices import NoticeSettings, notice_of, notify_once, read_notice_settings, send
from longboat.engines.shared.home import Home
from tests.metrics.test_values import status


class Receiver:
    def __init__(self) -> None:
        self.bodies: list[Any] = []
        self.codes: list[int] = []
        self.leads_to = ""
        self.is_asked = False
        self.may_answer = threading.Event()
        self.may_answer.set()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.bodies.append(json.loads(body))
                receiver.may_answer.wait(60)
                self.send_response(receiver.codes.pop(0) if receiver.codes else 200)
                if receiver.leads_to:
                    self.send_header("Location", receiver.leads_to)
                self.end_headers()

            def do_GET(self) -> None:
                receiver.is_asked = True
                self.send_response(200)
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None: ...

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/hook?token=s3cret"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    monkeypatch.setattr(notices, "PAUSE_S", 0.01)
    made = Receiver()
    yield made
    made.server.shutdown()
    made.server.server_close()


FAILED = status(
    name="train",
    phase="failed",
    exit_code=1,
    cause="exception",
    reason="rank 0: ValueError: bad",
    started=100.0,
    ended=300.0,
    step=12,
    metrics={"loss": 0.5, "odd": float("nan")},
    command="python train.py --token hidden",
)


def test_a_notice_says_how_it_ended_and_not_what_was_run() -> None:
    notice = notice_of(FAILED)
    assert notice["text"].startswith(
        "train failed after 3m20s with exit code 1: rank 0: ValueError: bad (step 12, loss 0.5"
    )
    assert notice["seconds"] == 200.0 and notice["metrics"] == {"loss": 0.5}
    assert "hidden" not in json.dumps(notice)
    assert notice_of(status(phase="stopped"))["text"] == "r was stopped"


def test_webhook_slack_and_command_are_told(receiver: Receiver, tmp_path: Path) -> None:
    command = f'cat > {tmp_path}/got; echo "$LONGBOAT_NOTICE_PHASE" > {tmp_path}/phase'
    told: list[str] = []
    send(NoticeSettings(webhook=receiver.url, slack=receiver.url, command=command), FAILED, told.append)
    assert told == []
    assert receiver.bodies[0]["run"] == "train" and set(receiver.bodies[1]) == {"text"}
    assert json.loads((tmp_path / "got").read_text())["exit_code"] == 1
    assert (tmp_path / "phase").read_text() == "failed\n"


def test_a_server_that_fails_is_tried_again_and_its_address_is_told_to_nobody(receiver: Receiver) -> None:
    told: list[str] = []
    receiver.codes = [503, 200]
    send(NoticeSettings(webhook=receiver.url), FAILED, told.append)
    assert told == [] and len(receiver.bodies) == 2
    receiver.codes = [404]
    send(NoticeSettings(webhook=receiver.url, command="exit 3"), FAILED, told.append)
    assert told == [
        "the notice of train was not sent (notify.webhook): HTTP status 404",
        "the notice of train was not given (notify.command): exit code 3",
    ]
    told.clear()
    receiver.codes, receiver.leads_to = [302, 307], f"{receiver.url}&elsewhere"
    send(NoticeSettings(webhook=receiver.url, slack=receiver.url), FAILED, told.append)
    assert [text.partition(": ")[2] for text in told] == [
        "HTTP status 302, which leads elsewhere: name that address",
        "HTTP status 307, which leads elsewhere: name that address",
    ]
    assert not receiver.is_asked, "who leads elsewhere is not followed: a page that answers has not been told"
    receiver.server.shutdown()
    receiver.server.server_close()
    send(NoticeSettings(slack=receiver.url), FAILED, told.append)
    assert "s3cret" not in "".join(told) and len(told) == 3


def test_a_receiver_that_answers_a_byte_at_a_time_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A timeout that begins anew with each byte would keep the sender for hours."""
    monkeypatch.setattr(notices, "SEND_S", 0.3)
    monkeypatch.setattr(notices, "PAUSE_S", 0.0)
    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def drip() -> None:
            while not over.is_set():
                with contextlib.suppress(OSError):
                    connection, _ = listener.accept()
                    with connection:
                        connection.sendall(b"HTTP/1.1 200 OK\r\nX: ")
                        while not over.wait(0.02):
                            connection.sendall(b"a")

        threading.Thread(target=drip, daemon=True).start()
        told: list[str] = []
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
        sender = threading.Thread(target=send, args=(NoticeSettings(webhook=url), FAILED, told.append), daemon=True)
        sender.start()
        sender.join(60)
        over.set()
    assert told == ["the notice of train was not sent (notify.webhook): TimeoutError"]


def test_a_clusters_run_is_told_once_for_each_home_and_only_when_it_has_just_ended(
    receiver: Receiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = {"LONGBOAT_HOME": str(tmp_path)}
    home = Home(environment=environment)
    notify_once(home, FAILED, 310.0, print)
    assert receiver.bodies == []
    write_setting(environment, "notify.webhook", receiver.url)
    assert (tmp_path / "config.yaml").stat().st_mode & 0o077 == 0
    notify_once(home, FAILED, 5000.0, print)
    monkeypatch.setattr(notices, "PATIENCE_S", 60.0)
    for _ in range(2):
        notify_once(home, FAILED, 310.0, print)
    assert len(receiver.bodies) == 1
    write_setting(environment, "notify.on", "[succeeded]")
    notify_once(home, status(uid="other", phase="failed", ended=300.0), 310.0, print)
    assert len(receiver.bodies) == 1


def test_nobody_waits_for_a_server_that_does_not_answer(
    receiver: Receiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment, said = {"LONGBOAT_HOME": str(tmp_path)}, list[str]()
    home, senders, make = Home(environment=environment), list[subprocess.Popen[bytes]](), notices._sender

    def noted(*given: Any, **more: Any) -> subprocess.Popen[bytes]:
        senders.append(make(*given, **more))
        return senders[-1]

    monkeypatch.setattr(notices, "_sender", noted)
    monkeypatch.setattr(notices, "PATIENCE_S", 0.0)
    receiver.may_answer.clear()
    receiver.codes.append(400)
    write_setting(environment, "notify.webhook", receiver.url)
    notify_once(home, FAILED, 310.0, said.append)
    assert said == []
    receiver.may_answer.set()
    assert senders[0].wait(60) == 0 and len(receiver.bodies) == 1, "it is sent all the same"
    monkeypatch.setattr(notices, "PATIENCE_S", 60.0)
    receiver.codes.append(400)
    notify_once(home, status(uid="other", phase="failed", ended=300.0), 310.0, said.append)
    assert said == ["the notice of r was not sent (notify.webhook): HTTP status 400"]


def test_settings_are_checked_when_they_are_set(tmp_path: Path) -> None:
    environment = {"LONGBOAT_HOME": str(tmp_path)}
    for key, value in (("notify.webhook", "file:///etc/passwd"), ("notify.on", "[ended]"), ("notify.mail", "a@b")):
        with pytest.raises(JobError):
            write_setting(environment, key, value)
    assert read_notice_settings(Home(environment=environment)) == NoticeSettings()
    (tmp_path / "config.yaml").write_text("notify: [1, 2]\n")
    assert read_notice_settings(Home(environment=environment)) == NoticeSettings()


def test_what_a_trainer_prints_is_neither_a_link_nor_a_line_of_its_own(receiver: Receiver) -> None:
    run = status(phase="failed", reason="ValueError:\n<!channel> a & b\r\n\tnow", metrics={"a\nb": 1.0}, step=1)
    assert notice_of(run)["text"] == "r failed: ValueError: <!channel> a & b now (step 1, a b 1)"
    send(NoticeSettings(slack=receiver.url), run, print)
    assert receiver.bodies == [{"text": "r failed: ValueError: &lt;!channel&gt; a &amp; b now (step 1, a b 1)"}]


def test_on_a_full_disk_the_next_is_told_where_one_refuses(receiver: Receiver, tmp_path: Path) -> None:
    environment = {"LONGBOAT_HOME": str(tmp_path)}
    settings = {"webhook": receiver.url, "slack": receiver.url, "command": f"cat > {tmp_path}/told"}
    for name, value in settings.items():
        write_setting(environment, f"notify.{name}", value)
    receiver.codes = [404]
    with open("/dev/full", "wb") as full:
        notices._sender(Home(environment=environment), FAILED, stderr=full.fileno()).wait(60)
    assert len(receiver.bodies) == 2 and (tmp_path / "told").read_text()

"""Commands in real pods: input and output byte for byte, exit codes, a terminal, and what goes wrong."""

from __future__ import annotations

import contextlib
import fcntl
import io
import json
import os
import pty
import signal
import struct
import termios
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

import pytest

from longboat.engines.kubernetes.exec.pod_exec import Remote
from longboat.kubeapi.client import Client
from longboat.kubeapi.errors import ApiError, Invalid, ObjectNotFound, Unreachable
from longboat.kubeapi.streams import exec, websocket
from longboat.kubeapi.streams.exec import V4, ContainerProcess, Session, exit_code_in, relay_streams, run_in_pod
from testbed.proxy import ApiProxy
from tests.kubeapi.pods import SLEEPS, running


@pytest.fixture
def pod(client: Client) -> str:
    return running(client, "quiet", SLEEPS)


@pytest.mark.parametrize(
    ("status", "code"),
    [
        ({"status": "Success"}, 0),
        (
            {"reason": "NonZeroExitCode", "details": {"causes": [{"reason": "ExitCode", "message": "137"}]}},
            137,
        ),
    ],
)
def test_exit_codes_are_in_the_status(status: dict[str, Any], code: int) -> None:
    assert exit_code_in(json.dumps(status).encode()) == code


def test_a_status_without_an_exit_code_is_an_error() -> None:
    with pytest.raises(ApiError, match="no such container"):
        exit_code_in(b'{"status": "Failure", "reason": "InternalError", "message": "no such container", "code": 500}')
    with pytest.raises(Unreachable, match="before the command did"):
        exit_code_in(b"")


@pytest.mark.pods
def test_output_errors_and_exit_code(client: Client, pod: str) -> None:
    out, err = io.BytesIO(), io.BytesIO()
    command = ["sh", "-c", 'printf "%s\\n" "$@"; echo no >&2; exit 37', "x", "a b", "$HOME & 'c'", "ü"]
    assert run_in_pod(client, pod, command, stdout=out, stderr=err) == 37
    assert out.getvalue().decode() == "a b\n$HOME & 'c'\nü\n"
    assert err.getvalue() == b"no\n"
    assert run_in_pod(client, pod, ["true"]) == 0


@pytest.mark.pods
def test_ten_megabytes_there_and_back(client: Client, pod: str) -> None:
    content = os.urandom(10 << 20)
    sources: list[BinaryIO | bytes] = [content, io.BytesIO(content)]
    for source in sources:
        out = io.BytesIO()
        assert run_in_pod(client, pod, ["cat"], stdin=source, stdout=out, timeout_s=120.0) == 0
        assert out.getvalue() == content


@pytest.mark.pods
def test_input_from_a_pipe_ends_when_the_pipe_does(client: Client, pod: str) -> None:
    read, write = os.pipe()

    def speak() -> None:
        with open(write, "wb") as sink:
            for at in range(3):
                sink.write(b"%d\n" % at)
                sink.flush()
                time.sleep(0.1)

    speaking = threading.Thread(target=speak)
    speaking.start()
    out = io.BytesIO()
    with open(read, "rb") as source:
        assert run_in_pod(client, pod, ["sort", "-r"], stdin=source, stdout=out, timeout_s=60.0) == 0
    speaking.join()
    assert out.getvalue() == b"2\n1\n0\n"


@pytest.mark.pods
def test_a_command_that_ends_before_its_input(client: Client, pod: str) -> None:
    read, write = os.pipe()
    out = io.BytesIO()
    with open(read, "rb") as source, open(write, "wb") as sink:
        sink.write(b"one\ntwo\n")
        sink.flush()
        # The pipe stays open: what nobody reads any more must not hold us.
        assert run_in_pod(client, pod, ["head", "-n", "1"], stdin=source, stdout=out, timeout_s=60.0) == 0
    assert out.getvalue() == b"one\n"


@pytest.mark.pods
def test_what_cannot_be_run_says_why(client: Client, pod: str) -> None:
    with pytest.raises(ApiError, match="executable file not found") as caught:
        run_in_pod(client, pod, ["no-such-program"])
    assert "no such program" in str(caught.value.hint)
    with pytest.raises(ObjectNotFound, match="not found"):
        run_in_pod(client, "no-such-pod", ["true"])
    with pytest.raises(Invalid, match="container other is not valid"):
        run_in_pod(client, pod, ["true"], container="other")
    with pytest.raises(Unreachable, match=r"within 0\.5 s"):
        run_in_pod(client, pod, ["sleep", "100"], timeout_s=0.5)


@pytest.mark.pods
def test_the_older_protocol(client: Client, pod: str) -> None:
    place = ContainerProcess(pod, command=("sh", "-c", "echo hi; exit 4"))
    out = io.BytesIO()
    session = Session(client, place, stdin=False, tty=False, protocols=(V4,))
    assert session.socket.protocol == V4
    assert relay_streams(session, None, out, None, timeout_s=60.0) == 4
    assert out.getvalue() == b"hi\n"


@pytest.mark.pods
def test_files_go_in_through_a_server_that_cannot_end_input(
    client: Client, pod: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    defaults = Session.__init__.__kwdefaults__
    assert defaults is not None
    monkeypatch.setitem(defaults, "protocols", (V4,))
    content = os.urandom(1 << 20)
    remote = Remote(client, None, pod)
    remote.put("/tmp/older/file", io.BytesIO(content))
    assert b"".join(remote.cat("/tmp/older/file")) == content
    remote.put("/tmp/older/file", io.BytesIO())
    assert b"".join(remote.cat("/tmp/older/file")) == b""


@pytest.mark.pods
def test_a_server_that_cannot_end_input_is_told(client: Client, pod: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Asked for a protocol it does not know, this server answers as one before 1.30 does to v5.
    monkeypatch.setattr(exec, "V5", "v9.channel.k8s.io")
    with pytest.raises(ApiError, match="cannot pass on the end of a command's input") as caught:
        run_in_pod(client, pod, ["cat"], stdin=b"x", timeout_s=60.0)
    assert caught.value.hint == "Kubernetes 1.30 can"
    assert run_in_pod(client, pod, ["true"], timeout_s=60.0) == 0


class Said(io.BytesIO):
    """Does something when the command in the pod runs, which a busy machine makes late."""

    def __init__(self, act: Callable[[], object]) -> None:
        super().__init__()
        self.act = act

    def write(self, data: object) -> int:
        threading.Thread(target=self.act).start()
        return super().write(data)  # type: ignore[arg-type]


@pytest.mark.pods
def test_a_connection_that_breaks_is_told(proxied: Client, client: Client, api_proxy: ApiProxy, pod: str) -> None:
    runs = Said(api_proxy.cut)
    with pytest.raises(Unreachable, match="connection broke"):
        run_in_pod(proxied, pod, ["sh", "-c", "echo up; sleep 1000"], stdout=runs, timeout_s=60.0)


@pytest.mark.pods
def test_a_connection_that_falls_silent_is_told(
    proxied: Client, client: Client, api_proxy: ApiProxy, pod: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(websocket, "PING_S", 0.2)
    monkeypatch.setattr(websocket, "SILENCE_S", 2.0)
    # Pings are answered: a quiet command is no silence.
    assert run_in_pod(proxied, pod, ["sleep", "4"], timeout_s=60.0) == 0
    runs = Said(api_proxy.freeze)
    with pytest.raises(Unreachable, match="silent"):
        run_in_pod(proxied, pod, ["sh", "-c", "echo up; sleep 1000"], stdout=runs, timeout_s=60.0)


@contextlib.contextmanager
def terminal(columns: int, lines: int) -> Iterator[tuple[int, BinaryIO]]:
    """A user's end, and ours."""
    user, ours = pty.openpty()
    resize(user, columns, lines)
    with open(ours, "r+b", buffering=0) as found:
        yield user, found  # type: ignore[misc]
    os.close(user)


def resize(number: int, columns: int, lines: int) -> None:
    fcntl.ioctl(number, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))


class Screen(io.BytesIO):
    """Calls when a text has appeared on it."""

    def __init__(self, steps: list[tuple[bytes, Callable[[], None]]]) -> None:
        super().__init__()
        self.steps = steps

    def write(self, content: Any) -> int:
        size = super().write(content)
        while self.steps and self.steps[0][0] in self.getvalue():
            self.steps.pop(0)[1]()
        return size


@pytest.mark.pods
def test_a_terminal_is_passed_through(client: Client, pod: str) -> None:
    with terminal(101, 41) as (user, ours):
        before = termios.tcgetattr(ours.fileno())

        def type_in(text: bytes) -> Callable[[], None]:
            return lambda: (os.write(user, text), None)[1]

        def make_wider() -> None:
            resize(user, 77, 33)
            os.kill(os.getpid(), signal.SIGWINCH)

        screen = Screen(
            [
                (b"ready", type_in(b"stty size; echo first-$((1+1))\r")),
                (b"first-2", make_wider),
                (b"first-2", type_in(b"sleep 0.5; stty size; echo second-$((1+1)); sleep 1000\r")),
                (b"second-2", type_in(b"\x03")),  # Ctrl-C is the command's, not ours
                (b"second-2", type_in(b"exit 9\r")),
            ]
        )
        command = ["sh", "-c", "stty -echo; echo ready; exec sh -i"]
        assert run_in_pod(client, pod, command, stdin=ours, stdout=screen, tty=True, timeout_s=60.0) == 9
        shown = screen.getvalue()
        assert b"41 101" in shown
        assert b"33 77" in shown
        assert termios.tcgetattr(ours.fileno()) == before

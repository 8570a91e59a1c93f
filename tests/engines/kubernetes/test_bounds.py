"""What others fill has a bound: answers of servers, of images, lines of logs, Secrets. Real servers send all of it."""

from __future__ import annotations

import contextlib
import gzip
import http.client
import json
import socket
import struct
import threading
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from longboat.core.errors import EngineError
from longboat.engines.kubernetes.exec import pod_exec
from longboat.engines.kubernetes.exec.launcher_calls import ask_status, checked
from longboat.engines.kubernetes.exec.pod_exec import Remote
from longboat.engines.kubernetes.logs import lines as podlines
from longboat.engines.kubernetes.logs.lines import Parser, batches
from longboat.engines.kubernetes.manifests import gang_file
from longboat.engines.kubernetes.observe.termination import read_termination
from longboat.engines.kubernetes.status import make_status
from longboat.engines.shared import logfiles
from longboat.engines.shared.files import last_lines_of
from longboat.engines.shared.logfiles import Reader, Source
from longboat.kubeapi.client import Client
from longboat.kubeapi.connection import bodies
from longboat.kubeapi.errors import Unreachable
from longboat.kubeapi.streams.exec import MOST_STATUS, STATUS, STDERR, STDOUT, BoundedOutput, run_in_pod
from longboat.kubeapi.streams.websocket import BINARY, CLOSE, LARGEST, MAGIC
from longboat.launcher.node.jsonfiles import read_bytes
from tests.engines.kubernetes.run_samples import running, snapshot
from tests.storage.answering import Told, answering

SUCCESS = json.dumps({"status": "Success"}).encode()
DEEP = b"[" * 4000
CALM = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


def frame(content: bytes, opcode: int = BINARY, *, is_last: bool = True) -> bytes:
    """As servers send them: not masked."""
    return struct.pack("!BBQ", (0x80 if is_last else 0) | opcode, 127, len(content)) + content


class Image:
    """An API server behind which `says` answers every command, on a socket."""

    def __init__(self, says: Callable[[socket.socket], None]) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._says = says
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                link, _ = self._listening.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(link,), daemon=True).start()

    def _answer(self, link: socket.socket) -> None:
        import base64
        import hashlib

        with contextlib.suppress(OSError), link:
            head = b""
            while b"\r\n\r\n" not in head:
                head += link.recv(65536)
            key = next(line.split(b": ")[1] for line in head.split(b"\r\n") if line.startswith(b"Sec-WebSocket-Key"))
            proof = base64.b64encode(hashlib.sha1(key + MAGIC).digest())
            granted = b"HTTP/1.1 101 x\r\nUpgrade: websocket\r\nSec-WebSocket-Protocol: v5.channel.k8s.io\r\n"
            link.sendall(granted + b"Sec-WebSocket-Accept: " + proof + b"\r\n\r\n")
            self._says(link)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)  # closing alone leaves a thread in accept
        self._listening.close()


@contextlib.contextmanager
def talking(says: Callable[[socket.socket], None], folder: Path) -> Iterator[Client]:
    image = Image(says)
    with client_of(image.url, folder) as client:
        yield client
    image.close()


def client_of(url: str, folder: Path) -> Client:
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "x",
        "clusters": [{"name": "x", "cluster": {"server": url}}],
        "users": [{"name": "x", "user": {}}],
        "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x", "namespace": "default"}}],
    }
    (folder / "kubeconfig").write_text(json.dumps(config))
    return Client.open(environment={"KUBECONFIG": str(folder / "kubeconfig")})


def ends(link: socket.socket) -> None:
    link.sendall(frame(bytes([STATUS]) + SUCCESS) + frame(struct.pack("!H", 1000), CLOSE))


def without_end(channel: int, content: bytes = b"x" * 30_000) -> Callable[[socket.socket], None]:
    def says(link: socket.socket) -> None:
        while True:
            link.sendall(frame(bytes([channel]) + content))

    return says


def saying(*parts: bytes, channel: int = STDOUT) -> Callable[[socket.socket], None]:
    def says(link: socket.socket) -> None:
        for part in parts:
            link.sendall(frame(bytes([channel]) + part))
        ends(link)

    return says


@pytest.mark.parametrize("channel", [STDOUT, STDERR, STATUS])
def test_a_launcher_that_talks_without_end_is_not_listened_to(tmp_path: Path, channel: int) -> None:
    with talking(without_end(channel), tmp_path) as client:
        assert ask_status(client, "pod") is None


@pytest.mark.parametrize("answer", [DEEP, b'{"ranks":' * 4000, b"\xff", b"[]", b"1", b"", b'{"ranks": 1e999}'])
def test_an_invalid_answer_of_a_launcher_is_ignored(tmp_path: Path, answer: bytes) -> None:
    with talking(saying(answer), tmp_path) as client:
        assert not ask_status(client, "pod")


def test_a_truncated_answer_of_a_launcher_is_ignored(tmp_path: Path) -> None:
    whole = json.dumps({"phase": "running", "x": "y" * 50_000}).encode()
    with talking(saying(whole), tmp_path) as client:
        assert ask_status(client, "pod") == {"phase": "running"}
        assert ask_status(client, "pod", most_bytes=10_000) is None


NAMES = [
    "ranks",
    "0",
    "1",
    "x",
    "missing",
    "problems",
    "phase",
    "checkpoint",
    "resumed_from",
    "step",
    "metrics",
    "silent_s",
]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(st.sampled_from(NAMES), JSON, max_size=6))
@CALM
def test_whatever_a_launcher_answers_a_status_is_made_of_it(answer: dict[str, Any]) -> None:
    pod = running(0)
    status = make_status(snapshot(pod), {pod.node: checked(answer)})
    msgspec.json.encode(status)


def test_an_answer_in_json_has_a_bound_and_must_be_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with talking(saying(b'["a", ', b'"b"]'), tmp_path) as client:
        assert Remote(client, None, "pod").names("/x") == ["a", "b"]
    bad = {DEEP: "not understood", b"{}": "no list of names", b"[1]": "no list", b"x": "not understood"}
    for answer, words in bad.items():
        with talking(saying(answer), tmp_path) as client, pytest.raises(EngineError, match=words):
            Remote(client, None, "pod").names("/x")
    monkeypatch.setattr(pod_exec, "MOST_ANSWER", 1 << 20)
    with talking(without_end(STDOUT), tmp_path) as client:
        with pytest.raises(EngineError, match="longer than 1 MiB"):
            Remote(client, None, "pod").names("/x")


def test_a_program_that_says_nothing_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pod_exec, "SILENT_S", 0.3)
    with talking(lambda link: threading.Event().wait(20.0) and None, tmp_path) as client:
        with pytest.raises(EngineError, match="no answer for"):
            Remote(client, None, "pod").names("/x")


def test_the_first_bytes_of_what_a_command_writes() -> None:
    kept = BoundedOutput(10)
    assert kept.write(b"12345") == 5 and not kept.is_cut
    assert kept.write(b"67890abc") == 8 and kept.is_cut and kept.write(b"more") == 4
    assert kept.getvalue() == b"1234567890"


def test_a_message_in_frames_without_end_is_refused(tmp_path: Path) -> None:
    def says(link: socket.socket) -> None:
        link.sendall(frame(bytes([STDOUT]), is_last=False))
        while True:
            link.sendall(frame(b"x" * (1 << 20), 0, is_last=False))

    with talking(says, tmp_path) as client, pytest.raises(Unreachable, match=f"more than {LARGEST >> 20} MiB"):
        run_in_pod(client, "pod", ["x"], timeout_s=30.0)


def test_a_status_without_end_fills_nothing(tmp_path: Path) -> None:
    long = b"x" * (2 * MOST_STATUS // 8)
    with talking(saying(*[long] * 8, channel=STATUS), tmp_path) as client:
        with pytest.raises(Unreachable, match="before the command did"):
            run_in_pod(client, "pod", ["x"], timeout_s=30.0)


def response_of(told: Told) -> Iterator[http.client.HTTPResponse]:
    with answering(lambda _: told) as server:
        connection = http.client.HTTPConnection(server.url.removeprefix("http://"), timeout=10)
        connection.request("GET", "/")
        yield connection.getresponse()
        connection.close()


def test_an_answer_of_the_api_server_has_a_bound() -> None:
    for response in response_of(Told(body=b"x" * 100)):
        assert bodies.read_whole(response, 100) == b"x" * 100
    for response in response_of(Told(body=b"x" * 101)):
        with pytest.raises(http.client.HTTPException, match="longer than"):
            bodies.read_whole(response, 100)
    for response in response_of(Told(body=b"x" * 50, headers=(("Content-Length", "90"),))):
        with pytest.raises(http.client.IncompleteRead):
            bodies.read_whole(response, 100)
    chunks = b"HTTP/1.1 200 x\r\nTransfer-Encoding: chunked\r\n\r\n" + b"40\r\n" + b"x" * 64 + b"\r\n"
    for response in response_of(Told(raw=chunks * 1)):
        with pytest.raises(http.client.IncompleteRead):
            bodies.read_whole(response, 100)
    more = b"40\r\n" + b"x" * 64 + b"\r\n"
    for response in response_of(Told(raw=chunks + more)):
        with pytest.raises(http.client.HTTPException, match="longer than"):
            bodies.read_whole(response, 100)


def test_an_answer_that_grows_when_it_is_unpacked() -> None:
    assert bodies.unpacked(gzip.compress(b"x" * 1000), 1000) == b"x" * 1000
    for bad in (gzip.compress(b"x" * 1001), gzip.compress(b"x" * 50)[:-9]):
        with pytest.raises(zlib.error):
            bodies.unpacked(bad, 1000)


def test_a_refusal_that_is_nested_without_end_is_an_error_in_words(tmp_path: Path) -> None:
    with answering(lambda _: Told(403, b'{"kind":"Status","details":' + b'{"a":' * 5000)) as server:
        with client_of(server.url, tmp_path) as client, pytest.raises(EngineError):
            client.request("GET", "/x")


def test_a_gang_file_of_a_stranger(monkeypatch: pytest.MonkeyPatch) -> None:
    assert gang_file.decode(gzip.compress(b'{"a": 1}')) == {"a": 1}
    monkeypatch.setattr(gang_file, "MOST_UNPACKED", 1 << 20)
    bomb = gzip.compress(b"{" + b" " * (2 << 20) + b"}")
    for bad in (bomb, b"", b"\x1f\x8b", gzip.compress(b"{}")[:-3], gzip.compress(b'{"a":' * 5000), b"x" * 100):
        with pytest.raises(EngineError, match="damaged"):
            gang_file.decode(bad)


def test_a_termination_message_that_is_nested_without_end() -> None:
    assert read_termination(DEEP.decode()) is None
    assert read_termination('{"v": 1, "exit_code": ' + "[" * 4000) is None


def test_a_line_of_a_pods_log_without_end_is_told_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(podlines, "MOST_LINE", 1000)
    chunks = [b"first\n" + b"a" * 600, b"b" * 600, b"c" * 300, b"d\nlast\n"]
    found = list(batches(chunks))
    assert b"".join(line for batch in found for line in batch) == b"".join(chunks)
    assert max(len(line) for batch in found for line in batch) <= 1300 and found[0] == [b"first\n"]
    bits = [b"a" * 600, b"\n", b"b" * 600, b"\n", b"c" * 600]
    assert [line for batch in batches(bits) for line in batch] == [b"a" * 600 + b"\n", b"b" * 600 + b"\n", b"c" * 600]
    parser = Parser()
    assert [parser.parse(line).key for batch in found for line in batch] == [""] * 4


def test_a_line_of_a_log_file_without_end_is_told_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logfiles, "MOST_LINE", 4096)
    monkeypatch.setattr(logfiles, "_BLOCK", 1024)
    content = b"x" * 20_000 + b"\nend\n"
    (tmp_path / "0.out").write_bytes(content)
    source = Source(path=str(tmp_path / "0.out"), role="w", node="w-0", rank=0, stream="out", attempt=0)
    lines = [line.data for line in Reader(source).lines(is_last=True)]
    assert b"".join(lines) == content and max(map(len, lines)) <= 6000 and lines[-1] == b"end\n"
    reader = Reader(msgspec.structs.replace(source, path=str(tmp_path / "slow")))
    for _ in range(50):  # a line that comes bit by bit is one line
        with open(tmp_path / "slow", "ab") as file:
            file.write(b"." * 50)
        assert not list(reader.lines(is_last=False))
    assert [line.data for line in reader.lines(is_last=True)] == [b"." * 2500]


def test_the_last_lines_of_a_large_log(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"first\n" + b"x" * 100_000 + b"\nlast\n")
    assert last_lines_of(tmp_path / "log")[-1] == "last" and len("".join(last_lines_of(tmp_path / "log"))) < 8192
    assert last_lines_of(tmp_path / "none") == []


def test_a_file_that_a_rank_makes_large_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"x" * 1000)
    assert len(read_bytes(str(tmp_path / "x"), 1000)) == 1000
    with pytest.raises(OSError, match="too large"):
        read_bytes(str(tmp_path / "x"), 999)

"""The program inside of probe pods, in this process: what it sees, writes, trains and measures."""

from __future__ import annotations

import ast
import json
import socket
import threading
from pathlib import Path

import pytest

from longboat.core.guards.decoding import convert
from longboat.doctor.probes import pod_program
from longboat.doctor.probes.outcomes import PodReport, TrainProbe


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as probe:
        probe.bind(("", 0))
        monkeypatch.setattr(pod_program, "PORT", probe.getsockname()[1])
    threading.Thread(target=pod_program.serve, daemon=True).start()
    for _ in range(600):
        if not pod_program.timed(lambda: pod_program.echo("127.0.0.1"))[1]:
            return
        threading.Event().wait(0.05)
    raise AssertionError("nobody answers")


def test_it_is_python_3_8() -> None:
    ast.parse(Path(pod_program.__file__).read_text(), feature_version=(3, 8))


@pytest.mark.usefixtures("server")
def test_it_looks_around(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(pod_program.PORT))
    report = convert(json.loads(json.dumps(pod_program.look("127.0.0.1"))), PodReport)
    assert not report.peer_error and not report.service_error and report.shm and report.files and report.clock
    assert report.mtu == report.mtu_wanted > 0 and report.python.startswith("3.")
    figures = convert(pod_program.measure("127.0.0.1", 2, 0.1), PodReport)
    assert figures.bits_per_s > 0 and figures.streams == 2


def test_a_pod_that_nobody_answers() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        _, problem = pod_program.timed(lambda: socket.create_connection(closed.getsockname(), 1))
    assert "refused" in problem


def test_it_writes_and_reads_back(tmp_path: Path) -> None:
    assert pod_program.write(str(tmp_path)) == {"problem": ""} and list(tmp_path.iterdir()) == []


def test_it_trains_for_one_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pod_program, "torch_step", lambda gpus: None)  # whether or not there is one here
    probe = convert(pod_program.train(0), TrainProbe)
    assert probe.loss_after < probe.loss_before and not probe.error
    monkeypatch.setattr(pod_program, "loaded", lambda name: None)
    without = convert(pod_program.train(1), TrainProbe)
    assert without.error and not without.has_driver


def test_the_report_is_the_termination_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pod_program, "MESSAGE", str(tmp_path / "message"))
    pod_program.main("write", str(tmp_path / "nowhere"))
    assert "No such file" in json.loads((tmp_path / "message").read_text())["problem"]

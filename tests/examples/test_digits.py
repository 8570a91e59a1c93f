"""The digits example: plain ranks, its event files, and the whole of it through `longboat run`."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

import numpy as np

T = TypeVar("T")
EPOCHS = 60
EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "digits"


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"digits_{name}", EXAMPLE / f"{name}.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


events = load("events")


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def read_scalars(file: Path) -> tuple[str, list[tuple[int, dict[str, float]]]]:
    """Version and scalars of an event file, every checksum checked; written apart from the writer, field by field."""
    data, version, rows = file.read_bytes(), "", []
    while data:
        (length,), (length_crc,) = struct.unpack("<Q", data[:8]), struct.unpack("<I", data[8:12])
        event, (event_crc,) = data[12 : 12 + length], struct.unpack("<I", data[12 + length : 16 + length])
        assert length_crc == events.masked_crc(data[:8])
        assert event_crc == events.masked_crc(event)
        fields = dict(parse(event))
        version = fields.get(3, b"").decode() or version
        if 5 in fields:
            values = [dict(parse(value)) for number, value in parse(fields[5]) if number == 1]
            rows.append((fields[2], {value[1].decode(): value[2] for value in values}))
        data = data[16 + length :]
    return version, rows


def parse(message: bytes) -> list[tuple[int, Any]]:
    fields: list[tuple[int, Any]] = []
    at = 0

    def varint() -> int:
        nonlocal at
        number = shift = 0
        while True:
            byte = message[at]
            at += 1
            number |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return number

    while at < len(message):
        key = varint()
        if key & 7 == 0:
            fields.append((key >> 3, varint()))
            continue
        size = {1: 8, 5: 4}.get(key & 7) or varint()
        chunk = message[at : at + size]
        at += size
        fields.append((key >> 3, chunk if key & 7 == 2 else struct.unpack({8: "<d", 4: "<f"}[size], chunk)[0]))
    return fields


def test_checksum_is_masked_crc_32c() -> None:
    crc = 0xE3069283  # CRC-32C of "123456789", the check value of its definition
    assert events.masked_crc(b"123456789") == (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def test_event_file_holds_what_was_written(tmp_path: Path) -> None:
    writer = events.EventWriter(tmp_path / "new")
    writer.scalars(1, loss=0.5, accuracy=0.25)
    writer.scalars(300, loss=-2.0)
    writer.close()
    (file,) = (tmp_path / "new").iterdir()
    assert file.name.startswith("events.out.tfevents.")
    assert read_scalars(file) == ("brain.Event:2", [(1, {"loss": 0.5, "accuracy": 0.25}), (300, {"loss": -2.0})])


def test_data_are_whole() -> None:
    with np.load(EXAMPLE / "digits.npz") as data:
        assert data["images"].shape == (1797, 64)
        assert set(data["labels"]) == set(range(10))


def bare_environment(**more: str) -> dict[str, str]:
    """Without anything of Longboat: not even the package can be imported."""
    kept = {key: value for key, value in os.environ.items() if key in ("PATH", "HOME", "TEST_SESSION_OF_LONGBOAT")}
    return {**kept, "PYTHONPATH": str(Path(np.__file__).parents[1]), **more}


BARE = (sys.executable, "-S")
"""Without site-packages: an editable install of Longboat must not help; numpy comes through PYTHONPATH."""


def test_four_ranks_in_any_order_agree(tmp_path: Path) -> None:
    port = str(free_port())
    ranks = [
        subprocess.Popen(
            [*BARE, str(EXAMPLE / "train.py"), "--epochs", "3"],
            env=bare_environment(RANK=str(rank), WORLD_SIZE="4", MASTER_ADDR="127.0.0.1", MASTER_PORT=port),
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in (3, 0, 2, 1)
    ]
    outputs = [rank.communicate()[0] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0, 0, 0], outputs
    assert all("parameters agree" in output for output in outputs)
    assert reached(outputs[1]) >= 0.9
    assert len(re.findall(r"^epoch \d/3: loss \d", outputs[1], re.M)) == 3
    (file,) = (tmp_path / "runs").iterdir()
    assert [step for step, _ in read_scalars(file)[1]] == [1, 2, 3]


def test_one_process_needs_no_environment(tmp_path: Path) -> None:
    command = [*BARE, str(EXAMPLE / "train.py")]
    done = subprocess.run(command, env=bare_environment(), cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert reached(done.stdout) >= 0.9


def reached(output: str) -> float:
    found = re.findall(r"^(?:.*\| ?|.*\] ?)?accuracy: (\d\.\d+)$", output, re.M)
    assert len(found) == 1, output
    return float(found[0])


def copy_of_example(tmp_path: Path) -> Path:
    """The example as a clone would have it: only what is tracked."""
    folder = tmp_path / "digits"
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("checkpoints", "runs", "__pycache__"))
    return folder


def longboat(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "longboat", *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, stdin=subprocess.DEVNULL)


def test_the_job_trains_on_two_nodes(tmp_path: Path, home: Path) -> None:
    folder = copy_of_example(tmp_path)
    done = longboat("run", "-n", "whole", "job.yaml", cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    assert reached(done.stdout) >= 0.9
    assert sorted(re.findall(r"rank (\d) of 4: parameters agree", done.stdout)) == ["0", "1", "2", "3"]

    status = json.loads(longboat("status", "whole", "-o", "json", cwd=folder).stdout)
    status = status[0] if isinstance(status, list) else status
    assert (status["phase"], status["exit_code"], status["step"]) == ("succeeded", 0, 3)
    (file,) = Path(status["artifacts_dir"]).rglob("events.out.tfevents.*")
    assert [step for step, _ in read_scalars(file)[1]] == [1, 2, 3]
    kept = sorted(entry.name for entry in Path(status["checkpoint_dir"]).iterdir() if not entry.name.startswith("."))
    assert kept == ["step-1", "step-2", "step-3"]


def test_a_killed_rank_is_started_again_from_the_newest_checkpoint(tmp_path: Path, home: Path) -> None:
    folder = copy_of_example(tmp_path)
    longer = f"run=python train.py --epochs {EPOCHS}"
    started = longboat("run", "-d", "-n", "hurt", "job.yaml", "--set", longer, cwd=folder)
    assert started.returncode == 0, started.stderr
    checkpoints = folder / "checkpoints" / "hurt"
    wait_until(lambda: newest(checkpoints) >= 2)
    os.kill(wait_until(lambda: process_of(home, "LONGBOAT_RANK=2")), signal.SIGKILL)
    ended = longboat("wait", "hurt", cwd=folder)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    log = longboat("logs", "hurt", "--rank", "0", cwd=folder).stdout
    resumed = int(re.findall(r"resumed after epoch (\d+)", log)[-1])
    assert 2 <= resumed < EPOCHS
    # Every epoch after the resumed one was trained, and none before it a second time.
    second = [int(epoch) for epoch in re.findall(r"epoch (\d+)/", log.rpartition("resumed after epoch")[2])]
    assert second == list(range(resumed + 1, EPOCHS + 1))
    assert newest(checkpoints) == EPOCHS
    assert reached(log) >= 0.9


def newest(checkpoints: Path) -> int:
    return max((int(marker.parent.name[5:]) for marker in checkpoints.glob("step-*/.complete")), default=0)


def process_of(home: Path, variable: str) -> int | None:
    """The training process of this home with this variable in its environment."""
    wanted = {variable.encode(), f"LONGBOAT_HOME={home}".encode()}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            has = set((entry / "environ").read_bytes().split(b"\0"))
            command = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if wanted <= has and b"train.py" in command:
            return int(entry.name)
    return None


def wait_until(condition: Callable[[], T]) -> T:
    deadline = time.monotonic() + 60
    while not (value := condition()):
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)
    return value

"""The example that trains and serves, without Longboat around it; docs/serving.md runs it as a run and a service."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "train-and-serve"


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def ask(url: str, data: bytes | None = None) -> dict[str, object]:
    """The answer, once somebody listens."""
    deadline = time.monotonic() + 60
    while True:
        try:
            with urllib.request.urlopen(url, data=data, timeout=30) as response:
                answer: dict[str, object] = json.load(response)
                return answer
        except urllib.error.HTTPError:
            raise
        except OSError:
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_it_trains_then_serves_what_it_learned(tmp_path: Path) -> None:
    for name in ("app.py", "digits.npz"):
        shutil.copy(EXAMPLE / name, tmp_path)
    refused = subprocess.run([sys.executable, "app.py"], cwd=tmp_path, capture_output=True, text=True)
    assert refused.returncode == 1 and "no checkpoint" in refused.stderr
    code = "import sys; sys.modules['longboat'] = None; sys.argv[0] = 'app.py'; import app; app.main()"
    trained = subprocess.run(
        [sys.executable, "-c", code, "--train", "--epochs", "5"], cwd=tmp_path, capture_output=True, text=True
    )
    assert trained.returncode == 0, trained.stderr
    accuracy = re.fullmatch(r"accuracy (0\.\d+)\n", trained.stdout)
    assert accuracy is not None and float(accuracy[1]) > 0.85
    port = free_port()
    server = subprocess.Popen(
        [sys.executable, "-c", code, "--port", str(port)], cwd=tmp_path, stdout=subprocess.DEVNULL
    )
    try:
        assert float(str(ask(f"http://127.0.0.1:{port}/")["accuracy"])) > 0.85
        answer = ask(f"http://127.0.0.1:{port}/predict", json.dumps([0.0] * 64).encode())
        assert isinstance(answer["probabilities"], list) and len(answer["probabilities"]) == 10
        try:
            ask(f"http://127.0.0.1:{port}/predict", b"[1, 2]")
            raise AssertionError("64 numbers are expected")
        except urllib.error.HTTPError as error:
            assert error.code == 400
    finally:
        server.kill()
        server.wait()

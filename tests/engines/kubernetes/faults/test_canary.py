"""A secret's value is in the run's own Secret and in its ranks, and nowhere else."""

from __future__ import annotations

import base64
import gzip
import json
import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from longboat.core.runs import LogQuery
from tests.engines.kubernetes.faults.grounds import Ground

pytestmark = pytest.mark.pods

CODE = """
import hashlib, os, sys, time
open("/book/heard", "w").write(hashlib.sha256(os.environ["CANARY"].encode()).hexdigest())
print("ready", flush=True)
while not os.path.exists("/book/go-0"):
    time.sleep(0.05)
raise RuntimeError("broken on purpose, so that there is a post-mortem")
"""


def longboat(ground: Ground, *args: str) -> str:
    """What the command prints, on both streams."""
    folder = ground.root / "code"
    command = [sys.executable, "-m", "longboat", *args, "--engine", "kubernetes", "--namespace", ground.namespace]
    done = subprocess.run(command, cwd=folder, env=ground.environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def objects_holding(ground: Ground, value: str) -> list[str]:
    """Objects of every type, events too, with the value in them, encoded or packed or not."""
    found = []
    for kind, path, is_namespaced in ground.collections():
        for item in ground.api.items(path) if is_namespaced else ():
            if any(needle in text for text in texts(item) for needle in needles(value)):
                found.append(f"{kind} {item['metadata']['name']}")
    return sorted(set(found))


def needles(value: str) -> list[bytes]:
    """The value, and what it looks like in base64 wherever it begins."""
    raw = value.encode()
    return [raw, *(base64.b64encode(b"x" * at + raw)[4 * ((at + 2) // 3) : -4] for at in range(3))]


def texts(item: dict[str, Any]) -> Iterator[bytes]:
    yield json.dumps(item).encode()
    for text in (item.get("data") or {}).values():
        try:
            data = base64.b64decode(text, validate=True)
        except ValueError:
            continue
        yield gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data


def command_lines() -> bytes:
    """Of all processes; those of the pods are among them."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            found.append((entry / "cmdline").read_bytes())
        except OSError:
            continue
    return b"\n".join(found)


def test_a_canary_is_found_nowhere_but_in_its_own_secret(ground: Ground) -> None:
    value = f"canary-{secrets.token_hex(16)}"
    ground.environment["CANARY"] = value
    submission = ground.submission(CODE, secrets=["CANARY"])
    job = ground.root / "job.yaml"
    job.write_text(json.dumps({"name": "job", "run": ["python", "train.py"], "workdir": "code", "secrets": ["CANARY"]}))
    told = [longboat(ground, "run", str(job), "--dry-run", "-o", form) for form in ("yaml", "json")]
    told.append(longboat(ground, "run", str(job), "--dry-run"))
    ground.engine.submit(submission)
    ground.until(lambda: (ground.book / "heard").exists(), "the rank has its secret")
    argv = command_lines()
    told.append(longboat(ground, "status", "job", "-o", "json"))
    while_running = objects_holding(ground, value)
    ground.let_go()
    assert ground.wait().phase == "failed"
    told += [
        longboat(ground, *words) for words in (("status", "job", "-o", "json"), ("explain", "job"), ("logs", "job"))
    ]
    told += [line.data.decode() for line in ground.engine.logs("job", LogQuery())]
    told += ground.notices
    assert while_running == objects_holding(ground, value) == ["Secret job-env"]
    assert "broken on purpose" in "".join(told) and "CANARY" in "".join(told)
    for needle in needles(value):
        assert needle not in argv
        assert needle not in "\n".join(told).encode()
        files = [path for root in (ground.storage, ground.home) for path in root.rglob("*") if path.is_file()]
        assert [path for path in files if needle in path.read_bytes()] == []
    assert files and os.environ.get("CANARY") is None
    ground.remove()

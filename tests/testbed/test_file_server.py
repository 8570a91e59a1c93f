"""The server of a folder serves it, and hangs, refuses, crawls, cuts and spoils when it is told to."""

from __future__ import annotations

import http.client
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed import file_server, processes
from testbed.file_server import Fault

ROOT = Path(__file__).resolve().parents[2]
CONTENT = bytes(range(256)) * 1024


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    (tmp_path / "public" / "core:").mkdir(parents=True)
    (tmp_path / "public" / "core:" / "file.deb").write_bytes(CONTENT)
    (tmp_path / "secret").write_text("not public")
    command = [sys.executable, "-m", "testbed.file_server", str(tmp_path), "127.0.0.1"]
    server = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL)
    try:
        assert processes.wait_until((tmp_path / "port").exists, 30)
        yield tmp_path, f"http://127.0.0.1:{(tmp_path / 'port').read_text()}/core%3A/file.deb"
    finally:
        server.kill()
        server.wait()


def read(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=60) as answer:
        content: bytes = answer.read()
    return content


def test_last_fault_that_matches_counts(tmp_path: Path) -> None:
    assert file_server.fault_for(tmp_path, "/any") == Fault()
    hangs, refused = Fault(hangs=True), Fault("*.deb", status=404)
    file_server.write_faults(tmp_path, [hangs, refused])
    assert file_server.read_faults(tmp_path) == [hangs, refused]
    assert file_server.fault_for(tmp_path, "/x/Packages") == hangs
    assert file_server.fault_for(tmp_path, "/x/a.deb") == refused


def test_serves_nothing_but_the_public_folder(served: tuple[Path, str]) -> None:
    _, url = served
    assert read(url) == CONTENT
    for path in ("/", "/core:/", "/secret", "/../secret", "/%2e%2e/secret", "/port"):
        with pytest.raises(urllib.error.HTTPError) as refused:
            read(url.rpartition("/core")[0] + path)
        assert refused.value.code == 404, path


def test_refuses_cuts_and_spoils(served: tuple[Path, str]) -> None:
    folder, url = served
    file_server.write_faults(folder, [Fault("*/file.deb", status=503)])
    with pytest.raises(urllib.error.HTTPError) as refused:
        read(url)
    assert refused.value.code == 503
    file_server.write_faults(folder, [Fault("*.deb", cut_after=1000)])
    with pytest.raises(http.client.IncompleteRead) as cut:
        read(url)
    assert cut.value.partial == CONTENT[:1000]
    file_server.write_faults(folder, [Fault("*.deb", is_spoiled=True)])
    spoiled = read(url)
    assert len(spoiled) == len(CONTENT) and spoiled != CONTENT


def test_crawls_until_it_may_hurry(served: tuple[Path, str]) -> None:
    folder, url = served
    file_server.write_faults(folder, [Fault("*.deb", bytes_per_s=500)])
    with urllib.request.urlopen(url, timeout=60) as answer:
        assert answer.read(100) == CONTENT[:100]
        assert len(answer.read1(len(CONTENT))) < len(CONTENT) / 2, "the rest takes minutes"
        file_server.write_faults(folder, [])
        assert answer.read()[-1000:] == CONTENT[-1000:]


def test_hangs_until_it_may_go_on(served: tuple[Path, str]) -> None:
    folder, url = served
    file_server.write_faults(folder, [Fault(hangs=True)])
    answers: list[bytes] = []
    reader = threading.Thread(target=lambda: answers.append(read(url)))
    reader.start()
    reader.join(0.3)
    assert reader.is_alive() and not answers
    file_server.write_faults(folder, [])
    reader.join(30)
    assert answers == [CONTENT]

"""This machine as a host: scripts, input, limits. What is said here holds for every transport (`test_ssh`)."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from longboat.clusters.hosts.connection import CommandFailed, FilePart, HostUnreachable, check
from longboat.clusters.hosts.local import LocalConnection
from longboat.core.errors import EngineError


@pytest.fixture
def here() -> LocalConnection:
    return LocalConnection("here")


def run(host: LocalConnection, script: str, **options):
    return host.run(script, as_root=False, **options)


def test_output_code_and_lines(here: LocalConnection) -> None:
    lines: list[str] = []
    result = run(here, 'echo out; echo "it\'s" >&2; printf end; exit 3', on_line=lines.append)
    assert (result.code, result.stdout, result.stderr) == (3, "out\nend", "it's\n")
    assert sorted(lines) == ["end", "it's", "out"]


def test_stdin_is_streamed_from_parts_of_files(here: LocalConnection, tmp_path: Path) -> None:
    file = tmp_path / "big"
    file.write_bytes(b"a" * (1 << 20) + b"b" * (1 << 20))
    parts = (b"", FilePart(path=file, offset=(1 << 20) - 2, size=4), b"", FilePart(path=file, offset=0, size=0), b"end")
    assert run(here, "cat", stdin=parts).stdout == "aabbend"
    whole = (b"x" * (1 << 20), FilePart(path=file, offset=0, size=2 << 20))
    assert run(here, "wc -c", stdin=whole).stdout.strip() == str(3 << 20)
    with pytest.raises(EngineError, match="big cannot be read: it has become shorter"):
        run(here, "cat >/dev/null", stdin=(FilePart(path=file, offset=0, size=3 << 20),))


def test_stdin_is_streamed_from_bytes_and_files(here: LocalConnection, tmp_path: Path) -> None:
    file = tmp_path / "big"
    file.write_bytes(os.urandom(1 << 20) * 3)
    assert run(here, "wc -c", stdin=file).stdout.strip() == str(3 << 20)
    assert run(here, "cat", stdin=b"hello\n").stdout == "hello\n"
    assert run(here, "true", stdin=file).code == 0, "a script need not read it"
    with pytest.raises(EngineError, match="cannot be read: No such file"):
        run(here, "touch made", stdin=tmp_path / "missing")


def test_a_limit_ends_all_that_the_script_started(here: LocalConnection, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    with pytest.raises(HostUnreachable, match="no end within 1 s; it was stopped"):
        run(here, f"sleep 100 & echo $! > {pids}; echo $$ >> {pids}; wait", timeout_s=1)
    deadline = time.monotonic() + 30
    while any(is_running(pid) for pid in pids.read_text().split()):
        assert time.monotonic() < deadline, "what the script started still runs"
        time.sleep(0.05)


def test_closing_ends_what_runs_and_nothing_begins_after_it(here: LocalConnection, tmp_path: Path) -> None:
    """Ctrl-C in the middle of a step: an apt that went on by itself would meet the next command."""
    pids, errors = tmp_path / "pids", []
    script = f"sleep 100 & echo $! > {pids}.new; mv {pids}.new {pids}; wait"

    def work() -> None:
        with pytest.raises(HostUnreachable, match="here: the connection was closed here") as raised:
            run(here, script)
        errors.append(raised.value)

    thread = threading.Thread(target=work)
    thread.start()
    wait_until(pids.exists)
    here.close()
    thread.join(30)
    assert errors
    wait_until(lambda: not is_running(pids.read_text().strip()))
    with pytest.raises(HostUnreachable, match="closed here"):
        run(here, f"touch {tmp_path}/more")
    assert not (tmp_path / "more").exists()


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def is_running(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_daemon_that_keeps_the_output_open_is_not_waited_for(here: LocalConnection) -> None:
    daemon = int(run(here, "sleep 100 & echo $!", timeout_s=60).stdout)
    os.kill(daemon, signal.SIGKILL)


def test_a_failed_script_says_its_last_line(here: LocalConnection) -> None:
    class AsUser:
        name = "here"

        def run(self, script: str, **options):
            return run(here, script, **{key: options[key] for key in options if key != "as_root"})

    assert check(AsUser(), "echo 1") == "1\n"
    with pytest.raises(CommandFailed, match="here: second"):
        check(AsUser(), "echo first >&2; echo second >&2; false")

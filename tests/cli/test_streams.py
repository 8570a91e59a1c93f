"""Streams that the caller closed, or that take nothing: one message, and an exit code of the list."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Longboat


def shell(longboat: Longboat, line: str) -> tuple[int, str]:
    """A line of sh with $LB in it; what came on stderr."""
    environment = {**longboat.environment, "LB": f"{sys.executable} -m longboat"}
    done = subprocess.run(
        ["/bin/sh", "-c", line], cwd=longboat.folder, env=environment, stderr=subprocess.PIPE, text=True, check=False
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("where", [">&-", ">/dev/full"])
def test_output_that_cannot_be_written_is_said(longboat: Longboat, where: str, unbuffered: str) -> None:
    longboat.environment["PYTHONUNBUFFERED"] = unbuffered
    code, err = shell(longboat, f"exec $LB schema {where}")
    assert (code, err.count("\n")) == (205, 1) and err.startswith("error: cannot write to stdout: "), err
    code, err = shell(longboat, f"exec $LB run -q -- echo hi {where}")
    assert code == 205 and "hint: the run goes on: longboat logs -f echo" in err, err
    assert not (Path(longboat.environment["LONGBOAT_HOME"]) / "crashes").exists()


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("$LB run -q -- echo hi >/dev/null 2>&-", 0),
        ("$LB run -q -- true >&- 2>&- <&-", 0),
        ("$LB ps --no-such-option 2>&-", 201),
        ("$LB ps --no-such-option 2>/dev/full", 201),
        ("$LB schema >/dev/full 2>/dev/full", 205),
        ("$LB secret set NAME <&-", 201),
    ],
)
def test_streams_that_are_not_needed_may_be_closed(longboat: Longboat, line: str, code: int) -> None:
    done, err = shell(longboat, f"exec {line}")
    assert done == code and "internal error" not in err and "Traceback" not in err, err


def test_a_line_is_written_at_once_also_unbuffered(longboat: Longboat) -> None:
    """Of commands that write to one file beside each other lines would be mixed up, and images set PYTHONUNBUFFERED."""
    longboat.environment["PYTHONUNBUFFERED"] = "1"
    reader, writer = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)  # it keeps writes apart
    with reader, writer:
        process = longboat.popen("run", "-d", "-n", "one", "--", "true", stdout=writer, stderr=writer)
        assert process.wait() == 0
        assert reader.recv(100) == b"one\n"
        longboat.popen("status", "two", stdout=writer, stderr=writer).wait()
        assert reader.recv(100) == b"error: no run named 'two'\n"


@pytest.mark.parametrize(("value", "reason"), [(b"a\0b", "a NUL byte"), (b"a\xffb", "not UTF-8 text")])
def test_a_secret_that_no_variable_can_hold_is_refused(longboat: Longboat, value: bytes, reason: str) -> None:
    (longboat.folder / "value").write_bytes(value)
    code, err = shell(longboat, "exec $LB secret set NAME < value")
    assert code == 201 and reason in err
    (longboat.folder / "value").write_bytes(b"a\0b")
    (longboat.folder / "job.yaml").write_text("run: env\nsecrets:\n  NAME: {file: value}\n")
    assert "its value has a NUL byte" in longboat("run", "job.yaml", code=203).err
    assert not longboat("ps", "-a", "-o", "name").out


def test_a_message_after_an_unfinished_line_has_a_line_of_its_own_where_both_go_to_one_file(longboat: Longboat) -> None:
    shell(longboat, "exec $LB run -- printf unfinished >both 2>&1")
    shell(longboat, "exec $LB run -- printf unfinished >out 2>err")
    both = (longboat.folder / "both").read_text()
    assert "\nunfinished\nlongboat: " in both, both
    assert (longboat.folder / "out").read_text() == "unfinished", "what the rank wrote, and nothing else"
    assert "\n\n" not in (longboat.folder / "err").read_text()


@pytest.mark.parametrize("command", ["run -- true", "run train.py", "check train.py", "sweep train.py"])
def test_a_current_folder_that_was_removed_is_said(longboat: Longboat, command: str) -> None:
    code, err = shell(longboat, f"mkdir gone && cd gone && rmdir ../gone && exec $LB {command} >../out")
    assert (longboat.folder / "out").read_text() == ""
    assert code == 202 and err.startswith("error: the current folder is not there any more\nhint: cd "), err


@pytest.mark.parametrize("command", ["ps", "run train.py", "status x", "rm x", "stop x", "config show", "secret ls"])
def test_a_home_that_this_user_may_not_enter_is_no_bug(longboat: Longboat, command: str) -> None:
    """As with `sudo -u somebody longboat ps`, which keeps HOME."""
    home = Path(longboat.environment["LONGBOAT_HOME"])
    home.chmod(0)
    caps = "setpriv --bounding-set=-dac_override,-dac_read_search" if os.geteuid() == 0 else ""
    code, err = shell(longboat, f"exec {caps} $LB {command}")
    home.chmod(0o700)
    assert code == 205 and err.startswith("error: cannot ") and str(home) in err, err
    assert "hint: point LONGBOAT_HOME to a folder you can " in err

"""stdin of a run with one rank: the caller's own; of a terminal, what is typed while this command has it."""

from __future__ import annotations

import fcntl
import glob
import os
import pty
import signal
import struct
import subprocess
import termios
import time
from pathlib import Path

from tests.cli.conftest import Longboat


def test_what_is_piped_in_is_the_ranks(longboat: Longboat) -> None:
    assert longboat("run", "-q", "--", "cat", stdin="hi\n").out == "hi\n"
    assert longboat("run", "-q", "--procs", "2", "--", "cat", stdin="hi\n").out == "", "whose would it be?"


def test_a_rank_that_does_not_read_leaves_everything_to_others(longboat: Longboat) -> None:
    """`while read line; do longboat run ...; done`"""
    reader, writer = os.pipe()
    os.write(writer, b"first\nsecond\n")
    os.close(writer)
    process = longboat.popen("run", "-q", "--", "true", stdin=reader)
    process.communicate()
    assert process.returncode == 0 and os.read(reader, 100) == b"first\nsecond\n"
    os.close(reader)


def test_a_question_on_a_terminal_is_seen_and_answered(longboat: Longboat) -> None:
    (longboat.folder / "ask.py").write_text("print('hello ' + input('name? '))\n")
    ours, theirs = pty.openpty()
    process = longboat.popen("run", "-q", "ask.py", stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True)
    os.close(theirs)
    seen = b""
    while b"name? " not in seen:
        seen += os.read(ours, 100)
    assert process.poll() is None
    os.write(ours, b"longboat\n")
    while b"hello longboat" not in seen:
        seen += os.read(ours, 100)
    assert process.wait() == 0
    os.close(ours)


def untouched(terminal: int) -> int:
    """Bytes that were typed and that nobody has read."""
    return int(struct.unpack("i", fcntl.ioctl(terminal, termios.FIONREAD, b"\0" * 4))[0])


def shown_until(terminal: int, text: bytes) -> None:
    seen = b""
    while text not in seen:
        seen += os.read(terminal, 100)


def is_stopped(pid: int) -> bool:
    """Each thread of it: a busy machine takes its time to stop them."""
    states = [Path(file).read_text().rpartition(")")[2].split()[0] for file in glob.glob(f"/proc/{pid}/task/*/stat")]
    return set(states) == {"T"}


def test_what_is_typed_while_the_command_is_stopped_is_the_shells(longboat: Longboat) -> None:
    """As after Ctrl-Z: the rank goes on, in a session where job control does not reach it."""
    ours, theirs = pty.openpty()
    process = longboat.popen("run", "-q", "--", "echo up; cat", stdin=theirs, stdout=theirs, start_new_session=True)
    shown_until(ours, b"up")
    process.send_signal(signal.SIGSTOP)
    while not is_stopped(process.pid):
        time.sleep(0.01)
    os.write(ours, b"password\n")
    time.sleep(0.3)
    assert untouched(theirs) == len("password\n")
    termios.tcflush(theirs, termios.TCIFLUSH)
    process.send_signal(signal.SIGCONT)
    os.write(ours, b"for cat\n\x04")
    assert process.wait(30) == 0
    assert longboat("logs").out == "up\nfor cat\n"
    os.close(ours)
    os.close(theirs)


def test_typed_input_ends_with_the_command(longboat: Longboat) -> None:
    ours, theirs = pty.openpty()
    command = ("run", "-q", "--id", "r", "--", "echo up; cat")
    process = longboat.popen(*command, stdin=theirs, stdout=theirs, start_new_session=True)
    shown_until(ours, b"up")
    process.kill()
    process.wait()
    os.write(ours, b"password\n")
    assert longboat.popen("wait", "r").wait(30) == 0, "cat has read to the end"
    assert untouched(theirs) == len("password\n")
    assert longboat("logs", "r").out == "up\n"
    os.close(ours)
    os.close(theirs)


def test_a_rank_that_does_not_read_leaves_the_shell_all_but_one_line(longboat: Longboat) -> None:
    ours, theirs = pty.openpty()
    process = longboat.popen("run", "-q", "--", "echo up; sleep 1", stdin=theirs, stdout=theirs, start_new_session=True)
    shown_until(ours, b"up")
    os.write(ours, b"first\nsecond\nthird\n")
    assert process.wait(30) == 0
    assert untouched(theirs) >= len("second\nthird\n")
    os.close(ours)
    os.close(theirs)


def test_a_breakpoint_in_place_is_stepped_through(longboat: Longboat) -> None:
    (longboat.folder / "stops.py").write_text("value = 6\nbreakpoint()\nprint('after', value)\n")
    ours, theirs = pty.openpty()
    command = ("run", "-q", "--in-place", "stops.py")
    process = longboat.popen(*command, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True)
    shown_until(ours, b"(Pdb) ")
    os.write(ours, b"p value * 7\n")
    shown_until(ours, b"42")
    os.write(ours, b"c\n")
    shown_until(ours, b"after 6")
    assert process.wait(30) == 0
    os.close(ours)
    os.close(theirs)


def test_a_secret_is_in_no_file_of_the_run(longboat: Longboat) -> None:
    """Nor on the screen, nor in what `explain` shows; also if it is written in two pieces."""
    longboat("secret", "set", "TOKEN", stdin="s3cret-value-of-a-token")
    script = 'printf "first $TOKEN then s3cret-va"; sleep 0.2; echo lue-of-a-token; echo "error: $TOKEN" >&2; exit 3'
    done = longboat("run", "-q", "--id", "r", "--secret", "TOKEN", "--", "sh", "-c", script, code=3)
    assert (done.out, done.err) == ("first *** then ***\n", "error: ***\n")
    assert "error: ***" in longboat("explain", "r").out
    found = subprocess.run(
        ["grep", "-rl", "s3cret-value-of-a-token", f"{longboat.environment['LONGBOAT_HOME']}/runs"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.stdout == ""

"""stdin of a run with one rank: the caller's own."""

from __future__ import annotations

import os
import pty
import subprocess

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

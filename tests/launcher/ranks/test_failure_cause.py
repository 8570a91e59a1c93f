"""What a rank's last words say."""

from __future__ import annotations

import pytest

from longboat.launcher.ranks.failure_cause import (
    TAIL_LINES,
    EndEvidence,
    find_traceback,
    in_units,
    judge,
    lines_of,
    mpirun_culprit,
    tail_of,
)

SIMPLE = """noise
Traceback (most recent call last):
  File "train.py", line 3, in <module>
    main()
  File "train.py", line 2, in main
    raise ValueError("bad")
ValueError: bad
"""
CHAINED = """Traceback (most recent call last):
  File "old.py", line 1, in <module>
KeyError: 'survived'
going on
Traceback (most recent call last):
  File "a.py", line 1, in f
    x = {}["k"]
KeyError: 'k'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "a.py", line 5, in <module>
    f()
RuntimeError: no k
"""
TORCH = """[rank1]: Traceback (most recent call last):
[rank1]:   File "/x/train.py", line 3, in <module>
[rank1]:     model.cuda()
[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.
[rank1]:W1115 cleaning up
"""
GROUP = """  + Exception Group Traceback (most recent call last):
  |   File "g.py", line 1, in <module>
  |     raise ExceptionGroup("two", [ValueError("a")])
  | ExceptionGroup: two (1 sub-exception)
  +-+---------------- 1 ----------------
    | ValueError: a
    +------------------------------------
"""
SYNTAX = """  File "train.py", line 2
    def (
        ^
SyntaxError: invalid syntax
"""


def test_simple_traceback() -> None:
    text, message = find_traceback(SIMPLE.splitlines())
    assert message == "ValueError: bad"
    assert text.splitlines()[0] == "Traceback (most recent call last):"
    assert text.splitlines()[-1] == "ValueError: bad"
    assert "noise" not in text


def test_chained_exceptions_are_kept_together_and_survived_ones_left_out() -> None:
    text, message = find_traceback(CHAINED.splitlines())
    assert message == "RuntimeError: no k"
    assert "KeyError: 'k'" in text
    assert "survived" not in text


def test_a_message_of_several_lines() -> None:
    lines = [*SIMPLE.splitlines()[:-1], "RuntimeError: Error(s) in loading:", "\tsize mismatch", "unrelated"]
    text, message = find_traceback(lines)
    assert message == "RuntimeError: Error(s) in loading:"
    assert text.endswith("\tsize mismatch")


def test_syntax_error_has_no_header() -> None:
    text, message = find_traceback(SYNTAX.splitlines())
    assert message == "SyntaxError: invalid syntax"
    assert text.startswith('  File "train.py", line 2')


def test_exception_groups() -> None:
    cause, message, traceback = judge(1, None, GROUP.encode(), EndEvidence())
    assert (cause, message) == ("exception", "ExceptionGroup: two (1 sub-exception)")
    assert "| ValueError: a" in traceback


def test_a_traceback_long_ago_is_not_the_cause() -> None:
    lines = SIMPLE.splitlines() + ["step"] * 100
    assert find_traceback(lines) == ("", "")


def test_a_traceback_cut_off_in_the_middle() -> None:
    assert find_traceback(SIMPLE.splitlines()[:3]) == ("", "")


def test_huge_tracebacks_are_bounded() -> None:
    lines = ["Traceback (most recent call last):"] + ['  File "x.py", line 1, in f'] * 5000 + ["RecursionError: deep"]
    text, message = find_traceback(lines)
    assert message == "RecursionError: deep"
    assert len(text) < 25000


@pytest.mark.parametrize(
    ("code", "number", "err", "evidence", "cause", "message"),
    [
        (1, None, SIMPLE, EndEvidence(), "exception", "ValueError: bad"),
        (3, None, "cannot do that\n", EndEvidence(), "exit", "exit code 3: cannot do that"),
        (3, None, "", EndEvidence(), "exit", "exit code 3"),
        (3, None, "longboat: checkpoints of worker-0 are not kept\n", EndEvidence(), "exit", "exit code 3"),
        (3, None, "too hot\nlongboat: step not reported\n", EndEvidence(), "exit", "exit code 3: too hot"),
        (139, 11, "", EndEvidence(), "signal", "killed by SIGSEGV (signal 11)"),
        (137, 9, "", EndEvidence(), "signal", "killed by SIGKILL (signal 9)"),
        (137, 9, "", EndEvidence(kernel_oom=True), "oom", "killed by the kernel: out of memory"),
        (143, 15, "", EndEvidence(kernel_oom=True), "signal", "killed by SIGTERM (signal 15)"),
        (137, 9, "", EndEvidence(over_limit=3 << 30, limit=2 << 30), "oom", "used 3 GiB, over the limit of 2 GiB"),
        (1, None, SIMPLE.replace("ValueError: bad", "MemoryError"), EndEvidence(), "oom", "MemoryError"),
        (134, 6, "terminate called\n  what():  std::bad_alloc\n", EndEvidence(), "oom", "what():  std::bad_alloc"),
        (162, 34, "", EndEvidence(), "signal", "killed by signal 34"),
    ],
)
def test_causes(code: int, number: int | None, err: str, evidence: EndEvidence, cause: str, message: str) -> None:
    assert judge(code, number, err.encode(), evidence)[:2] == (cause, message)


def test_torch_prefixes_are_taken_off_and_gpu_memory_is_oom() -> None:
    cause, message, traceback = judge(1, None, TORCH.encode(), EndEvidence())
    assert cause == "oom"
    assert message.startswith("torch.OutOfMemoryError: CUDA out of memory")
    assert "[rank1]" not in traceback


def test_tail_is_stderr_else_stdout() -> None:
    out = b"".join(b"line %d\n" % number for number in range(50))
    assert tail_of(b" \n", out) == [f"line {number}" for number in range(50 - TAIL_LINES, 50)]
    assert tail_of(b"wrong\n", out) == ["wrong"]
    assert tail_of(b"", b"") == []


def test_lines_are_safe_whatever_the_bytes() -> None:
    assert lines_of(b"\xff\xfe\x00ok\n") == ["\ufffd\ufffd\x00ok"]
    assert len(lines_of(b"x" * 100000)[0]) == 2000


def test_units() -> None:
    assert [in_units(count) for count in (5, 1 << 20, 5 << 40)] == ["5 B", "1 MiB", "5 TiB"]


@pytest.mark.parametrize(
    ("text", "culprit"),
    [
        ("mpirun noticed that process rank 3 with PID 77 on node worker-1 exited on signal 9 (Killed).", (3, 9)),
        ("The first process to do so was:\n\n  Process name: [[52345,1],2]\n  Exit code:    7\n-----", (2, None)),
        ("ValueError: bad", None),
        ("mpirun noticed that process rank x exited on signal y", None),
        ("mpirun noticed that process rank 3 exited on signal", None),
        ("mpirun noticed that process rank \u00b2 with PID 7 exited on signal 9 (Killed).", None),
        ("  Process name: [[52345,1],\u00b2]", None),
        ("mpirun noticed that process rank 1 exited on signal " + "9" * 5000, None),
    ],
)
def test_mpirun_names_the_rank_that_failed(text: str, culprit: object) -> None:
    assert mpirun_culprit(text.splitlines()) == culprit


def test_the_kernel_s_kill_names_the_limit_of_the_control_group() -> None:
    killed = judge(137, 9, b"", EndEvidence(kernel_oom=True, group=(1 << 30, 1_000_000_000)))
    assert killed[0] == "oom"
    assert killed[1] == (
        "killed by the kernel: out of memory (the limit of its control group is 1 GiB, and 953.7 MiB were used)"
    )
    assert judge(137, 9, b"", EndEvidence(kernel_oom=True, group=(1 << 30, None)))[1].endswith(
        "control group is 1 GiB)"
    )
    assert judge(137, 9, b"", EndEvidence(kernel_oom=True))[1] == "killed by the kernel: out of memory"

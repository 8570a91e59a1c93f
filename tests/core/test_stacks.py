"""Stacks cut out of logs, and the odd one out."""

from __future__ import annotations

from longboat.core.stacks import cut, describe, main_frames, odd_one_out

HEAD = "Current thread 0x00007f8c87bc4b80 (most recent call first):\n"


def stack(function: str, line: int, file: str = "dist.py") -> str:
    return f'{HEAD}  File "/a b/{file}", line {line} in {function}\n  File "/x/train.py", line 40 in <module>\n'


WAITING = stack("all_reduce", 40)
LOADING = stack("load_batch", 12, "data.py")


def test_cut_leaves_out_other_lines() -> None:
    log = (
        "step 4\nFatal Python error: Aborted\n\nThread 0x01 (most recent call first):\n"
        '  File "a.py", line 1 in run\nloss 0.3\n'
        + WAITING
        + "\nExtension modules: numpy (total: 3)\n  File not ours\n"
    )
    assert cut(log).splitlines() == [
        "Fatal Python error: Aborted",
        "Thread 0x01 (most recent call first):",
        '  File "a.py", line 1 in run',
        *WAITING.splitlines(),
    ]


def test_frames_of_the_thread_that_took_the_signal() -> None:
    text = 'Thread 0x01 (most recent call first):\n  File "t.py", line 1 in other\n\n' + LOADING
    assert main_frames(text) == [("load_batch", "data.py:12"), ("<module>", "train.py:40")]


def test_frames_of_the_main_process_only() -> None:
    assert main_frames(WAITING + "# process 7\n" + LOADING)[0][0] == "all_reduce"


def test_odd_one_out_of_four() -> None:
    assert odd_one_out({0: WAITING, 1: WAITING, 2: LOADING, 3: WAITING}) == ((2,), "load_batch (data.py:12)")


def test_all_in_the_same_place() -> None:
    assert odd_one_out({0: WAITING, 1: WAITING}) == ((), "all_reduce (dist.py:40)")


def test_of_two_the_one_that_does_not_wait() -> None:
    assert odd_one_out({0: LOADING, 1: WAITING}) == ((0,), "load_batch (data.py:12)")


def test_of_two_different_stacks_neither_is_the_odd_one() -> None:
    assert odd_one_out({0: LOADING, 1: stack("forward", 3)}) == ((), "")


def test_ranks_without_a_stack_are_left_out() -> None:
    assert odd_one_out({0: "", 1: WAITING, 2: WAITING, 3: LOADING}) == ((3,), "load_batch (data.py:12)")
    assert odd_one_out({}) == ((), "")
    assert odd_one_out({0: "garbage\n  File"}) == ((), "")


def test_description() -> None:
    text = describe({0: WAITING, 1: LOADING, 2: WAITING}, (1, 61.4))
    assert text == (
        "rank 1 made no progress for 61 s; odd one out: rank 1 in load_batch (data.py:12); "
        "ranks 0, 2 in all_reduce (dist.py:40)"
    )
    assert describe({}, None)

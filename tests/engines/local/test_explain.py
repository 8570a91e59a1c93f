"""Words for what is known: statuses and failures in, explanation out. Pure."""

from __future__ import annotations

import pytest

from longboat.core.jobs import Job, Role
from longboat.core.runs import Attempt, Failure, Phase, RankReport, RankStatus, RunStatus
from longboat.engines.local.explain import explain_status
from longboat.engines.shared.explanations import restart_words
from longboat.engines.shared.retry_policy import describe

MiB = 1 << 20
NO_MODULE = "ModuleNotFoundError: No module named 'einops.layers'"


def status(phase: Phase, **more: object) -> RunStatus:
    fields: dict[str, object] = {"job": "job", "engine": "local", "created": 0.0, "nodes": 1, "gpus": 0, **more}
    return RunStatus(name="run", uid="u", phase=phase, **fields)  # type: ignore[arg-type]


def rank(**more: object) -> RankReport:
    return RankReport(rank=3, node="worker-1", **more)  # type: ignore[arg-type]


FAILURES = [
    (
        Failure(
            cause="exception",
            exit_code=1,
            message="ValueError: bad",
            rank=rank(traceback="Traceback:\n  f\nValueError: bad", step=7),
        ),
        ["rank 3 on node worker-1", "ValueError: bad"],
        ["last step 7"],
        ["ValueError: bad"],
        ["--rank 3", "mend"],
    ),
    (
        Failure(cause="signal", exit_code=139, message="", rank=rank(signal=11)),
        ["signal 11 (SIGSEGV)"],
        ["exit code 139"],
        [],
        ["retries"],
    ),
    (Failure(cause="signal", exit_code=139, message="", rank=rank(signal=11)), [], [], [], ["the Python stack"]),
    (Failure(cause="signal", exit_code=134, message="", rank=rank(signal=6)), [], [], [], ["failed assertion"]),
    (Failure(cause="signal", exit_code=143, message="", rank=rank(signal=15)), [], [], [], ["asked it to end"]),
    (Failure(cause="signal", exit_code=143, message=""), [], [], [], ["asked it to end"]),
    (Failure(cause="signal", exit_code=137, message="", rank=rank(signal=9)), [], [], [], ["out-of-memory killer"]),
    (Failure(cause="signal", exit_code=192, message="", rank=rank(signal=64)), ["signal 64"], [], [], []),
    (
        Failure(cause="oom", exit_code=137, message="", rank=rank(memory_peak=300 * MiB, memory_limit=100 * MiB)),
        ["300Mi used", "limit is 100Mi"],
        ["peak memory 300Mi"],
        [],
        ["batch size", "retries"],
    ),
    (
        Failure(cause="oom", exit_code=1, message="CUDA out of memory", rank=rank()),
        ["CUDA out of memory"],
        [],
        [],
        ["memory"],
    ),
    (
        Failure(
            cause="hang", exit_code=210, message="odd one out: rank 3 in load", rank=rank(stacks="Stack\n in load")
        ),
        ["odd one out: rank 3"],
        [],
        [" in load"],
        ["odd one out"],
    ),
    (
        Failure(cause="timeout", exit_code=207, message="too long"),
        ["timeout: too long"],
        ["exit code 207"],
        [],
        ["--resume run"],
    ),
    (
        Failure(cause="lost", exit_code=208, message="the machine restarted"),
        ["the machine restarted"],
        [],
        [],
        ["retries"],
    ),
    (Failure(cause="setup", exit_code=209, message="pip"), ["setup"], [], ["from setup"], ["by hand"]),
    (Failure(cause="data", exit_code=209, message="404"), ["404"], [], [], ["URL"]),
    (
        Failure(cause="exit", exit_code=127, message="nope: not found", rank=rank(tail=("last words",))),
        ["nope"],
        [],
        ["last words"],
        ["not found"],
    ),
    (
        Failure(cause="exit", exit_code=127, message="exit code 127: /bin/sh: 1: source: not found"),
        [],
        [],
        [],
        ["source is a word of bash: write `. FILE`"],
    ),
    (Failure(cause="exit", exit_code=127, message="sh: line 3: [[: command not found"), [], [], [], ["a word of bash"]),
    (Failure(cause="exit", exit_code=5, message=""), ["exit code 5"], [], [], ["longboat logs run"]),
    (Failure(cause="exit", exit_code=126, message="./x: not executable"), [], [], [], ["chmod +x"]),
    (Failure(cause="exception", exit_code=1, message=NO_MODULE), [], [], [], ["install einops"]),
    (Failure(cause="exit", exit_code=1, message="", rank=rank(tail=(NO_MODULE,))), [], [], [], ["install einops"]),
    (Failure(cause="oom", exit_code=1, message="CUDA out of memory. Tried", rank=rank()), [], [], [], ["the GPU's"]),
    (Failure(cause="oom", exit_code=1, message="MemoryError", rank=rank()), [], [], [], ["raise `memory`"]),
    (Failure(cause="image", exit_code=209, message="not found"), ["image: not found"], [], [], ["podman pull IMAGE"]),
]


@pytest.mark.parametrize(("failure", "headline", "facts", "lines", "steps"), FAILURES)
def test_post_mortem(
    failure: Failure, headline: list[str], facts: list[str], lines: list[str], steps: list[str]
) -> None:
    why = explain_status(status("failed"), failure, ("from setup",))
    assert why.cause == failure.cause
    for words in headline:
        assert words in why.headline
    for given, all_words in ((why.facts, facts), (why.lines, lines), (why.next_steps, steps)):
        for words in all_words:
            assert any(words in each for each in given), (words, given)


@pytest.mark.parametrize(
    ("shown", "words"),
    [
        (status("succeeded"), "succeeded"),
        (status("stopped", reason="stopped on request"), "stopped on request"),
        (status("pending", reason="waits for 1 GPU"), "it is pending: waits for 1 GPU"),
        (status("starting"), "it is starting"),
        (status("recovering", reason="retry 1 of 2"), "retry 1 of 2"),
        (status("running"), "it is running"),
        (status("failed", reason="the supervisor failed"), "the supervisor failed"),
    ],
)
def test_other_phases(shown: RunStatus, words: str) -> None:
    assert words in explain_status(shown, None, ()).headline


def test_silent_ranks_are_named() -> None:
    ranks = tuple(
        RankStatus(rank=n, role="worker", node="worker-0", alive=True, silent_s=s) for n, s in ((0, 5.0), (1, 1200.0))
    )
    why = explain_status(status("running", ranks=ranks), None, ())
    assert "silent" in why.headline and any("rank 1" in fact and "20 min" in fact for fact in why.facts)
    assert not any("rank 0" in fact for fact in why.facts)


def test_attempts_are_listed() -> None:
    lost = Failure(cause="lost", exit_code=208, message="")
    attempts = (
        Attempt(number=0, started=0, ended=1, failure=lost),
        Attempt(number=1, started=2, ended=3, resumed_from="/c/step-5"),
    )
    facts = explain_status(status("succeeded", attempts=attempts), None, ()).facts
    assert facts == ("attempt 1: lost", "attempt 2: ended well, resumed from step-5")


@pytest.mark.parametrize("number", [1, 2, 3, 6, 7, 11, 13, 15, 24, 64])
def test_only_a_kill_is_blamed_on_memory(number: int) -> None:
    failure = Failure(cause="signal", exit_code=128 + number, message="", rank=rank(signal=number))
    steps = explain_status(status("failed"), failure, ()).next_steps
    assert not any("memory" in step for step in steps if "shm" not in step), steps


def test_a_full_disk_is_the_advice_whatever_failed_of_it() -> None:
    words = "OSError: [Errno 28] No space left on device: 'step-3/model.pt'"
    for failure in (
        Failure(cause="exception", exit_code=1, message=words, rank=rank()),
        Failure(cause="exit", exit_code=1, message="exit code 1", rank=rank(tail=("cp: " + words,))),
    ):
        steps = explain_status(status("failed"), failure, ()).next_steps
        assert any("a disk or a quota was full" in step for step in steps), steps


def test_a_disk_that_was_full_before_the_ranks_started_is_no_matter_of_the_setup_command() -> None:
    failure = Failure(cause="setup", exit_code=209, message="setup: /home/runs/r/worker-0/work: the disk is full")
    (_, step) = explain_status(status("failed"), failure, ()).next_steps
    assert "free some space" in step


def test_a_job_of_one_rank_has_nobody_to_compare_with_and_a_chain_leads_to_its_first_failure() -> None:
    spec = Job(name="job", roles=(Role(name="worker", run="x", image="a/b:1"),), after=("first", "second"))
    hang = Failure(cause="hang", exit_code=210, message="no progress", rank=rank(stacks="s"))
    assert "raise `stall`" in explain_status(status("failed", spec=spec), hang, ()).next_steps[1]
    never = Failure(cause="dependency", exit_code=209, message="it was to start after first, which failed")
    steps = explain_status(status("failed", spec=spec), never, ()).next_steps
    assert steps[:2] == ("longboat explain first", "longboat explain second") and "run --after" in steps[2]
    image = Failure(cause="image", exit_code=209, message="no such tag")
    assert "podman pull a/b:1 " in explain_status(status("failed", spec=spec), image, ()).next_steps[1]


def test_a_cause_is_named_once() -> None:
    gone = Failure(cause="image", exit_code=209, message="image a/b:1: no such tag")
    assert explain_status(status("failed"), gone, ()).headline == describe(gone) == "image a/b:1: no such tag"


def test_it_is_told_how_a_retry_was_started_and_how_long_that_took() -> None:
    first = Attempt(number=0, started=1.0, ended=10.0)
    second = Attempt(number=1, started=10.5, running=11.25, ended=20.0, restart="in-place")
    third = Attempt(number=2, started=21.0, restart="new")
    words = [restart_words(attempt, (first, second, third)) for attempt in (first, second, third)]
    assert words == ["", "restarted in place 1.2 s after the failure", "started anew"]

"""`longboat run --on A,B`: asks each place, chooses one and says why; with `--failover`, moves a run that waits."""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from longboat.cli.input.engine_option import narrow_to, open_places, several_names
from longboat.cli.output.terminal import note
from longboat.core.errors import EngineError, LongboatError, NotFound, Refused
from longboat.core.runs import RunStatus

if TYPE_CHECKING:
    from longboat.engines.engine import Submission
    from longboat.multicluster.ask import NamedEngine
    from longboat.multicluster.decide import AskedPlace, Choice
    from longboat.multicluster.failover import Failover
    from longboat.specs.read import LoadedJob

UNIQUE_BYTES = 3
"""A moving run has the same name everywhere, so that it is known again; no other run has it by chance."""


def run_several(words: tuple[str, ...], command: tuple[str, ...], options: dict[str, Any]) -> int:
    from longboat.cli.commands.jobs import run as single
    from longboat.cli.input.loading import submission_of
    from longboat.sdk.submit import check_single

    places = open_places(several_names(), quiet=True)
    loaded = load_by_one(words, command, options, places)
    check_single(loaded.job)
    submission = submission_of(loaded, options["run_id"], in_place=options["in_place"])
    quiet = options["quiet"]
    for notice in () if quiet else (*loaded.notices, *single.misplaced(words), *claim_notices(submission)):
        note(notice)
    if options["failover"] is not None and not options["dry_run"]:
        return run_with_failover(places, submission, options)
    known = where_it_is(places, submission.run_id) if submission.run_id else None
    if known is None and options["dry_run"] and options["output"]:
        return show_answers(places, submission, options["output"])
    chosen = known[0] if known else choose_place(places, submission, quiet=quiet)
    narrow_to(chosen.name)
    if options["dry_run"]:
        from longboat.cli.output.plan_text import show_plan

        return show_plan(chosen.engine.plan(submission), (), None)
    (opened,) = open_places([chosen.name], quiet=quiet)  # this one's notices are shown
    return single.submit(opened.engine, submission, options)


def load_by_one(
    words: tuple[str, ...], command: tuple[str, ...], options: dict[str, Any], places: Sequence[NamedEngine]
) -> LoadedJob:
    """By the first place that has the runs that `--after` and `--resume` name: others may be away, or not have them."""
    from longboat.cli.input.loading import load

    *others, last = places if options.get("after") or options.get("resume") else places[:1]
    first: LongboatError | None = None
    for place in others:
        try:
            return load(words, command, options, place.engine)
        except (NotFound, EngineError) as error:
            first = first or error
    try:
        return load(words, command, options, last.engine)
    except (NotFound, EngineError) as error:
        raise first or error from None


def claim_notices(submission: Submission) -> list[str]:
    """Claims are a cluster's own: a choice of clusters is a choice of their data."""
    names = list(dict.fromkeys(volume.claim for volume in submission.job.volumes if volume.claim))
    return [f"claim {name} is each cluster's own: it runs only where there is one of that name" for name in names]


def choose_place(places: Sequence[NamedEngine], submission: Submission, *, quiet: bool) -> NamedEngine:
    """The place for it; what speaks for and against each is told. Raises where none is known to run it."""
    from longboat.multicluster.ask import ask_outlooks
    from longboat.multicluster.decide import choose
    from longboat.sdk.places import currency

    asked = ask_outlooks(places, submission)
    choice = choose(asked, currency())
    if not (quiet and choice.order):
        tell_choice(choice)
    if not choice.order:
        raise no_place(asked)
    return next(place for place in places if place.name == choice.order[0])


def show_answers(places: Sequence[NamedEngine], submission: Submission, output: str) -> int:
    """`--dry-run -o json`: what each place answered, and the order of those that could run it."""
    from longboat.cli.output.formats import plain, write
    from longboat.multicluster.ask import ask_outlooks
    from longboat.multicluster.decide import choose

    asked = ask_outlooks(places, submission)
    write({"order": list(choose(asked).order), "places": [plain(place) for place in asked]}, output)
    return 0


def tell_choice(choice: Choice) -> None:
    if choice.order:
        note(f"on {choice.order[0]}: {choice.chosen}")
    for name, reason in choice.against:
        note(f"not on {name}: {reason}")


def no_place(asked: Sequence[AskedPlace]) -> LongboatError:
    names = ", ".join(place.name for place in asked)
    if all(place.outlook.answer == "never" for place in asked):
        return Refused(f"none of {names} can run this job", hint="see the reason of each above")
    return EngineError(f"none of {names} is known to run this job", hint="see the reason of each above")


def where_it_is(places: Sequence[NamedEngine], run_id: str) -> tuple[NamedEngine, RunStatus] | None:
    """The place that has a run of this id, so that no other gets it. Raises EngineError where that is not known."""
    from longboat.multicluster.ask import ask_each

    answers = ask_each(places, lambda place: place.engine.status(run_id))
    there = [(place, answer) for place, answer in zip(places, answers) if isinstance(answer, RunStatus)]
    if there:
        return max(there, key=lambda pair: pair[1].created)
    for place, answer in zip(places, answers):
        if not isinstance(answer, NotFound):
            assert isinstance(answer, LongboatError)
            raise EngineError(
                f"{run_id} may be on {place.name}, which does not answer: {answer.message}",
                hint=f"leave {place.name} out of --on if you know that it is not there",
            )
    return None


def run_with_failover(places: Sequence[NamedEngine], submission: Submission, options: dict[str, Any]) -> int:
    from longboat.engines.shared.home import NAME_LIMIT, Home
    from longboat.multicluster.failover import Failover

    is_new = submission.run_id is None
    if is_new:
        suffix = f"-{secrets.token_hex(UNIQUE_BYTES)}"
        name = submission.job.name[: NAME_LIMIT - len(suffix)].rstrip("-") + suffix
        submission = msgspec.structs.replace(submission, run_id=name)
    home = Home()
    home.prepare()
    tell = (lambda text: None) if options["quiet"] else note
    failover = Failover(home, {place.name: place for place in places}, submission, options["failover"], tell=tell)
    with failover.alone():
        if failover.transfer is None:
            begin(failover, places, submission, is_new=is_new, quiet=options["quiet"])
        else:
            failover.check_goes_on()
        if options["detach"]:
            status = first_turns(failover)
            print(submission.run_id)
            if status is None:
                from longboat.cli.commands.jobs.failover_process import give_over

                give_over(failover, home, places, options["failover"])
            return 0
        status = wait_for_start(failover)
    if is_new:  # it may have ended while nobody looked, and is no run of an earlier command for that
        status = msgspec.structs.replace(status, phase="starting")
    return attach_where(failover, status, submission, quiet=options["quiet"])


def first_turns(failover: Failover) -> RunStatus | None:
    """Until a place has taken it or does not answer. Raises Refused where none takes it."""
    while True:
        before = failover.transfer
        status = failover.turn()
        assert failover.transfer is not None
        if status is not None or failover.transfer == before or failover.transfer.step == "wait":
            return status


def wait_for_start(failover: Failover) -> RunStatus:
    """Until it has started or ended somewhere. Ctrl-C stops it where it is."""
    from longboat.multicluster.failover import LOOK_S

    try:
        while (status := failover.turn()) is None:
            time.sleep(LOOK_S)
    except KeyboardInterrupt:
        assert failover.transfer is not None
        note(f"{failover.transfer.run} is asked to stop on {failover.transfer.at}")
        failover.stop()
        raise
    return status


def begin(
    failover: Failover, places: Sequence[NamedEngine], submission: Submission, *, is_new: bool, quiet: bool
) -> None:
    known = None if is_new else where_it_is(places, submission.run_id or "")
    if known is not None:
        place = known[0]
        failover.begin(place.name, place.engine.submit(submission))  # raises where that is a run of another job
        return
    failover.begin(choose_place(places, submission, quiet=quiet).name)


def attach_where(failover: Failover, status: RunStatus, submission: Submission, *, quiet: bool) -> int:
    from longboat.cli.attach import attach, exit_code

    assert failover.transfer is not None
    narrow_to(failover.transfer.at)
    (place,) = open_places([failover.transfer.at], quiet=quiet)
    return exit_code(attach(place.engine, status, ranks=submission.job.ranks, quiet=quiet))

"""Concurrent questions to several places (clusters, this machine). They only read: nobody waits for a late answer, and
it changes nothing."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, TimeoutError, wait
from typing import NamedTuple, TypeVar

import msgspec

from longboat.core.errors import EngineError, LongboatError, NotFound
from longboat.engines.engine import Engine, Submission
from longboat.engines.lifecycle.outlook import Outlook
from longboat.multicluster.decide import AskedPlace
from longboat.multicluster.prices import gpu_hour_of

PATIENCE_S = 15.0
"""Longer than a look at a cluster of thousands of nodes takes; a server that is away would be waited for 30 s."""

T = TypeVar("T")


class NamedEngine(NamedTuple):
    """An engine under the name that the user gave it: a context, or `local`."""

    name: str
    engine: Engine


def ask_each(places: Sequence[NamedEngine], question: Callable[[NamedEngine], T]) -> list[T | LongboatError]:
    """The answer of each place, or its error, in their order. An error that is none of ours is raised."""
    futures: list[Future[T]] = [Future() for _ in places]

    def ask(place: NamedEngine, future: Future[T]) -> None:
        try:
            future.set_result(question(place))
        except BaseException as error:
            future.set_exception(error)

    for place, future in zip(places, futures):  # not a pool, which would wait for all of them at the end
        threading.Thread(target=ask, args=(place, future), name=f"ask {place.name}", daemon=True).start()
    wait(futures, PATIENCE_S)
    answers: list[T | LongboatError] = []
    for future in futures:
        try:
            answers.append(future.result(0))
        except LongboatError as error:
            answers.append(error)
        except TimeoutError:
            answers.append(EngineError(f"no answer within {PATIENCE_S:g} s"))
    return answers


def answers_of(
    places: Sequence[NamedEngine], question: Callable[[NamedEngine], T], tell: Callable[[str, LongboatError], None]
) -> list[tuple[NamedEngine, T]]:
    """The answers of those that gave one; `tell` gets the others' names and errors. Raises the first if none did."""
    answered: list[tuple[NamedEngine, T]] = []
    silent: list[tuple[NamedEngine, LongboatError]] = []
    for place, answer in zip(places, ask_each(places, question)):
        if isinstance(answer, LongboatError):
            silent.append((place, answer))
        else:
            answered.append((place, answer))
    if silent and not answered:
        raise silent[0][1]
    for place, error in silent:
        tell(place.name, error)
    return answered


def ask_outlooks(places: Sequence[NamedEngine], submission: Submission) -> list[AskedPlace]:
    answers = ask_each(places, lambda place: outlook_at(place, submission))
    return [
        AskedPlace(
            name=place.name,
            outlook=Outlook(answer="unknown", reason=answer.message) if isinstance(answer, LongboatError) else answer,
        )
        for place, answer in zip(places, answers)
    ]


def outlook_at(place: NamedEngine, submission: Submission) -> Outlook:
    """What this place would do with the job. Raises where it does not answer."""
    for run in submission.job.after:
        try:
            place.engine.status(run)
        except NotFound:
            return Outlook(answer="never", reason=f"it starts after {run}, which is no run there")
    outlook = _outlook(place, submission)
    gpus = submission.job.gpus
    if outlook.price is None and gpus:
        gpu_hour = gpu_hour_of(outlook.machine_types)
        outlook = msgspec.structs.replace(outlook, price=None if gpu_hour is None else gpu_hour * gpus)
    return outlook


def set_price(engine: Engine) -> float | None:
    """The price of one GPU for an hour as it was set; 0: one's own machines; None: it was not set."""
    from longboat.engines.kubernetes.engine import KubernetesEngine
    from longboat.engines.local.engine import LocalEngine

    if isinstance(engine, LocalEngine):
        return engine.gpu_hour
    return engine.settings.gpu_hour if isinstance(engine, KubernetesEngine) else None


def _outlook(place: NamedEngine, submission: Submission) -> Outlook:
    from longboat.engines.kubernetes.engine import KubernetesEngine
    from longboat.engines.local.engine import LocalEngine

    engine = place.engine
    if isinstance(engine, LocalEngine):
        return engine.outlook(submission)
    if isinstance(engine, KubernetesEngine):
        from longboat.engines.kubernetes.submit.outlook import outlook_of

        if submission.in_place:
            return Outlook(answer="never", reason="--in-place runs in a folder of this machine")
        return outlook_of(engine.client, engine.settings, submission)
    raise AssertionError(f"an engine of another kind: {engine.name}")

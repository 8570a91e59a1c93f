"""The ConfigMap of a run: found, listed and read within bounds; its state replaced. What it holds is in `records`."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from longboat.core.elastic.sizes import as_submitted
from longboat.core.errors import EngineError, NotFound, UsageError
from longboat.core.guards.decoding import decoder
from longboat.core.guards.formats import FORMAT, NewerFormat, is_newer
from longboat.core.jobs import Job
from longboat.core.runs import Attempt
from longboat.engines.kubernetes import names
from longboat.engines.kubernetes.records import Record, State, at_present
from longboat.engines.kubernetes.slim_objects import SlimRecord
from longboat.engines.lifecycle.priorities import HIGHEST, LOWEST
from longboat.engines.shared.stop_request import StopRequest
from longboat.kubeapi.client import Client
from longboat.kubeapi.kinds import CONFIG_MAP

STOP = f"{names.DOMAIN}/stop"
ALIVE = f"{names.DOMAIN}/submitter-alive-at"
"""Annotation of the record: seconds since the epoch, by the server's clock. A forged value delays only that run."""
PRIORITY = f"{names.DOMAIN}/priority"
"""Annotation of the record: the priority that a waiting run was given later than its job."""
DRILL = f"{names.DOMAIN}/drill"
"""Annotation of the record: what the last recovery drill has shown."""
MOST_DRILL = 500  # characters of it: one sentence
MOST_NODES = 50_000
"""Nodes of one run, ten times what the largest clusters have: of a number that somebody forged no list is made."""
MOST_RANKS = 100_000
"""Ranks of one run, as many as a job file may ask for."""
MOST_ATTEMPTS = 1_000_000
"""Attempts that a state may speak of; a run that fails at once every second has as many after eleven days."""
MOST_GRACE_S = 1e7
"""Seconds, four months: no pod has a longer one."""
MOST_MOMENT = 1e12  # seconds since the epoch: far beyond any clock, and no overflow where it is shown
MOST_STATE = 640 << 10
"""Bytes of a state. A ConfigMap holds a MiB, the record with the job included."""
MOST_OLD_MESSAGE = 100
"""Characters of an old failure's message, where a run has failed so often that not all can be kept whole."""
MOST_DIGITS = 12
"""Of a moment in whole seconds: ten until the year 2286."""
MOST_QUOTED = 300
"""Characters of a message about a record, a line or two of a terminal."""

RUN_RECORDS = f"{names.MANAGED_BY}=longboat,{names.KIND} in (run,{names.EXPIRED_RUN})"

Object = dict[str, Any]
_UID = re.compile(r"[0-9a-f]{8,64}")
"""A part of it is in the names of the run's folders."""
_STRING = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"')
_WILD = re.compile(r"(?<![\d.])\d{17}|[eE]\+?(?:\d{3}|[2-9]\d|1[6-9])")
"""Numbers of 10^16 and more. No amount, moment or code of a run is as large, and what is computed with larger ones
overflows where nobody expects it: as a time, as a float, or when it is printed."""
_MAYBE_WILD = re.compile(r"[0-9](?:[0-9]{16}|[eE]\+?[0-9])")
"""Finds all of these and some more, in a third of the time: it was most of what a list of a thousand runs took."""

# Made here and not when first needed: msgspec builds type information lazily and not thread-safely.
RECORDS = decoder(Record)
STATES = decoder(State)
STOPS = decoder(StopRequest)


def find_record(client: Client, run: str) -> Object:
    """The ConfigMap of a run, or what is left of one that has expired. Raises NotFound."""
    record = None
    for name in (run, names.expired_name(run)) if _is_name(run) else ():
        record = record or client.find(CONFIG_MAP, name)
    if record is None or not is_record(record):
        raise NotFound(f"no run named {run!r} in namespace {client.namespace}", hint="`longboat ps -a` lists all runs")
    return record


def _is_name(run: str) -> bool:
    try:
        names.check_run_id(run)
    except UsageError:
        return False
    return True


class ListedRun(NamedTuple):
    """A record, with the object that holds it."""

    body: Mapping[str, Any]
    record: Record
    state: State


def list_records(
    client: Client, notice: Callable[[str], None] = lambda _: None, *, labels: str = ""
) -> Iterator[ListedRun]:
    """All runs of the namespace, or those with these labels too; a run with a bad record is reported through `notice`
    and left out."""
    selector = ",".join(filter(None, (RUN_RECORDS, labels)))
    for body in client.list(CONFIG_MAP, labels=selector, into=SlimRecord).items:
        if not is_record(body):
            continue
        try:
            yield ListedRun(body, *read_record(body))
        except EngineError as error:
            notice(error.message)


def is_record(body: Mapping[str, Any]) -> bool:
    """Whether a ConfigMap is there for a run; what it holds may still be of no use (`read_record`)."""
    return _kind_of(body) in ("run", names.EXPIRED_RUN)


def is_expired_record(body: Mapping[str, Any]) -> bool:
    return _kind_of(body) == names.EXPIRED_RUN


def _kind_of(body: Mapping[str, Any]) -> str | None:
    labels = (body.get("metadata") or {}).get("labels") or {}
    kind: str | None = labels.get(names.KIND)
    return kind


class BadRecord(EngineError):
    """A record that is not acted upon: damaged, or about another run than its object."""

    def __init__(self, run: str, text: str) -> None:
        # Others wrote what is quoted here: nothing of it steers a terminal or fills a log.
        shown = "".join(char if char.isprintable() else "?" for char in text[:MOST_QUOTED])
        super().__init__(f"the record of run {run} {shown}", hint="`longboat rm --force` removes it")


class NewerRecord(BadRecord, NewerFormat):
    """A record that a newer Longboat wrote."""

    def __init__(self, run: str) -> None:
        NewerFormat.__init__(self, f"the record of run {run}")


def read_record(body: Mapping[str, Any]) -> tuple[Record, State]:
    """Record and state of a ConfigMap, validated; every reader goes through here. Raises BadRecord.

    Tenants can write ConfigMaps. So a record is about the run of its object's own name and namespace or about none, and
    what it says is bounded before anything is computed from it.
    """
    metadata, data = body.get("metadata") or {}, body.get("data") or {}
    name, namespace = str(metadata.get("name", "")), str(metadata.get("namespace", ""))
    written, kept = data.get("record") or "", data.get("state") or "{}"
    try:
        record = RECORDS.decode(written)
        state = STATES.decode(kept)
    except (msgspec.MsgspecError, RecursionError) as error:
        if is_newer(written) or is_newer(kept):
            raise NewerRecord(name) from None
        raise BadRecord(name, f"is damaged: {error}") from None
    if max(record.format, state.format) > FORMAT:
        raise NewerRecord(name)
    # After it was read: in a text that is JSON every string ends, and so the search does not begin again and again.
    if any(map(has_wild_number, (written, kept))):
        raise BadRecord(name, "is damaged: it holds a number that is out of all bounds")
    is_expired = is_expired_record(body)
    own_name = names.expired_name(record.name) if is_expired else record.name
    if (own_name, record.namespace) != (name, namespace):
        about = f"{record.namespace[:64]}/{record.name[:64]}"
        raise BadRecord(name, f"in namespace {namespace} says that it is about {about}; nothing is done about it")
    if not _UID.fullmatch(record.uid):
        raise BadRecord(name, "is damaged: its uid is none")
    _check_size(name, as_submitted(record.job))  # an elastic one at its largest
    if is_expired is not (state.expired is not None) or (is_expired and not state.is_final):
        raise BadRecord(name, "is damaged: it says that a run has expired which is not one that did")
    if not abs(state.expired or 0.0) < MOST_MOMENT:
        raise BadRecord(name, "is damaged: the moment when it expired is none")
    if not 0 <= state.attempt <= MOST_ATTEMPTS:
        raise BadRecord(name, f"is damaged: it says that attempt {state.attempt + 1} is next")
    drill = str((metadata.get("annotations") or {}).get(DRILL) or "")[:MOST_DRILL]
    return msgspec.structs.replace(at_present(_with_priority(record, metadata), state), drill=drill), state


def has_wild_number(text: str) -> bool:
    """Whether a text that is JSON holds a number which nothing of a run is as large as."""
    return bool(_MAYBE_WILD.search(text) and _WILD.search(text) and _WILD.search(_STRING.sub("", text)))


def _check_size(name: str, job: Job) -> None:
    """Lists are made of nodes and of ranks, for all runs in one process."""
    if not 0 < job.pods <= MOST_NODES or any(role.nodes < 0 or role.spares < 0 for role in job.roles):
        raise BadRecord(name, f"is damaged: it asks for {job.pods} nodes, and a run has 1 to {MOST_NODES}")
    ranks = job.ranks
    if ranks > MOST_RANKS or any(role.procs < 0 for role in job.roles):
        raise BadRecord(name, f"is damaged: it asks for {ranks} ranks, and a run has at most {MOST_RANKS}")


def _with_priority(record: Record, metadata: Mapping[str, Any]) -> Record:
    text = str((metadata.get("annotations") or {}).get(PRIORITY) or "")
    if not re.fullmatch(r"-?[0-9]{1,7}", text):
        return record
    return msgspec.structs.replace(record, later_priority=min(max(int(text), LOWEST), HIGHEST))


def note_drill(client: Client, run: str, text: str) -> None:
    """What a drill has shown, on the record."""
    client.patch(CONFIG_MAP, run, {"metadata": {"annotations": {DRILL: text[:MOST_DRILL]}}})


def hash_of_record(body: Mapping[str, Any]) -> str:
    """Hash of the record's text as stored: what a template vouches for."""
    return hashlib.sha256(((body.get("data") or {}).get("record") or "").encode()).hexdigest()


def seconds_of(text: str) -> float | None:
    """A number that an annotation states; None for anything else that somebody wrote there."""
    return float(text) if text.isascii() and text.isdigit() and len(text) < MOST_DIGITS else None


def read_stop(body: Mapping[str, Any]) -> StopRequest | None:
    text = ((body.get("metadata") or {}).get("annotations") or {}).get(STOP)
    if not text:
        return None
    try:
        request = STOPS.decode(text)
    except (msgspec.MsgspecError, RecursionError):
        request = StopRequest(at=0.0)
    # Whoever wrote this wanted a stop, with whatever grace.
    return (
        request
        if abs(request.at) < MOST_MOMENT and 0 <= (request.grace_s or 0) <= MOST_GRACE_S
        else StopRequest(at=0.0)
    )


def stop_text(at: float, grace_s: float | None) -> str:
    return json.dumps({"at": at, "grace_s": grace_s})


def fitted(state: State) -> State:
    """What a ConfigMap can hold of it: of its oldest failures the last lines and tracebacks go first."""
    left = len(msgspec.json.encode(state)) - MOST_STATE
    attempts = list(state.attempts)
    for place, attempt in enumerate(attempts):
        if left <= 0:
            break
        attempts[place] = _without_details(attempt)
        left -= len(msgspec.json.encode(attempt)) - len(msgspec.json.encode(attempts[place]))
    return msgspec.structs.replace(state, attempts=tuple(attempts))


def _without_details(attempt: Attempt) -> Attempt:
    failure = attempt.failure
    if failure is None:
        return attempt
    report, message = failure.rank, failure.message[:MOST_OLD_MESSAGE]
    if report is not None:
        report = msgspec.structs.replace(report, message="", traceback="", stacks="", tail=())
    failure = msgspec.structs.replace(failure, message=message, rank=report, tail=())
    return msgspec.structs.replace(attempt, failure=failure)


def write_state(client: Client, run: str, version: str, state: State) -> str:
    """Replace the state if the record is still as it was at this version; else Conflict."""
    metadata: Object = {"resourceVersion": version}
    if state.is_final:
        metadata["labels"] = {names.ENDED: "true"}
    body = {"metadata": metadata, "data": {"state": msgspec.json.encode(fitted(state)).decode()}}
    written = client.patch(CONFIG_MAP, run, body)
    return str(written["metadata"]["resourceVersion"])

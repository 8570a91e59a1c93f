"""The files of metrics of a run's nodes: in a pod that runs, on the log of one that has ended, in the run's storage.

Whatever cannot be read is left out, with a notice.
"""

from __future__ import annotations

import base64
import re
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

from longboat.core.errors import LongboatError, NotFound
from longboat.core.words import listing
from longboat.engines.kubernetes.exec.pod_exec import Remote
from longboat.engines.kubernetes.manifests.volumes import NODE, STORAGE
from longboat.engines.kubernetes.observe.node_loss import is_reachable
from longboat.engines.kubernetes.observe.places import places_at
from longboat.engines.kubernetes.observe.snapshot import PodView, RunSnapshot
from longboat.engines.kubernetes.records import all_pods, expected_nodes
from longboat.kubeapi.client import Client
from longboat.metrics.series_file import MOST_BYTES, NAME, NodeFile, join, parse
from longboat.metrics.values import RunMetrics, last_points

AT_ONCE = 8  # each is a connection through the API server
MOST_PODS = 64
"""Nodes whose files are read; of a larger gang, the first so many."""
TAIL = 200
"""Lines of a pod's log among which its copy is: it is written last of all."""
READ_S = 20.0  # a kubelet that says nothing for so long has no log to give
MOST_EARLIER = 20  # attempts of one pod, the latest
_COPY = re.compile(rb"node\.err(?:@(\d{1,6}))?\+(1\d{12}) 0 \S+ ([A-Za-z0-9+/=]+)$")
_EARLIER = f"{NODE}/attempts"
"""Folder of a launcher's files of attempts that ended before a restart in place."""

Notice = Callable[[str], None]


def metrics_of_run(client: Client, snapshot: RunSnapshot, notice: Notice) -> RunMetrics:
    """The metrics of a run; where no file is left, the last values that its record has."""
    name, state = snapshot.record.name, snapshot.state
    metrics = join(name, node_files(client, snapshot, notice))
    if metrics.series or metrics.system:
        return metrics
    return last_points(name, state.step, state.metrics, state.ended or client.now(), metrics.software)


def node_files(client: Client, snapshot: RunSnapshot, notice: Notice) -> list[NodeFile]:
    """The files of all nodes and attempts that can be had."""
    record, state = snapshot.record, snapshot.state
    attempts = [
        number
        for number in (range(state.number + 1) if state.started is not None else ())
        if state.is_final or number < state.attempt or not state.is_in_place(number)
    ]
    wanted = [(attempt, node) for attempt in attempts for node in expected_nodes(record.job)]
    pods = {(pod.attempt, pod.node): pod for attempt in attempts for pod in snapshot.pods_of(attempt)}
    files: dict[tuple[int, str], NodeFile] = {}
    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="metrics") as pool:
        made = [(attempt, pod) for attempt in attempts for pod in all_pods(record.job)]
        asked = [key for key in made if key in pods][-MOST_PODS:]
        for (_, pod), by_attempt in zip(asked, pool.map(lambda key: _from_pod(client, snapshot, pods[key]), asked)):
            for attempt, data in by_attempt.items():
                node = places_at(record.job, state.attempts, attempt).get(pod, pod)
                files[(attempt, node)] = parse(data, node=node, attempt=attempt)
    missing = [key for key in wanted if key not in files][-MOST_PODS:]
    for (attempt, node), data in _from_storage(client, snapshot, missing, notice) if missing else ():
        files[(attempt, node)] = parse(data, node=node, attempt=attempt)
    return list(files.values())


def _from_pod(client: Client, snapshot: RunSnapshot, pod: PodView) -> dict[int, bytes]:
    """By attempt: by exec while it runs, from its log once it has ended; empty where there is nothing."""
    most = snapshot.record.job.retries.last_attempt
    files_of: dict[int, bytes] = {}
    try:
        if pod.is_running and is_reachable(pod, snapshot):
            remote = Remote(client, snapshot.record.namespace, pod.name)
            earlier = _earlier(remote, pod, most)
            for number in earlier[-MOST_EARLIER:]:
                files_of[number] = _read(remote, f"{_EARLIER}/{number}/{NAME}")
            files_of[max(earlier, default=pod.attempt - 1) + 1] = _read(remote, f"{NODE}/{NAME}")
        elif pod.end is not None and snapshot.record.storage is None:
            copies = log_copies(_log_tail(client, snapshot, pod))
            for mark, data in copies.items():
                number = pod.attempt if mark is None else mark
                if number <= max(most, pod.attempt):
                    files_of[number] = data
    except LongboatError:
        pass
    return {number: data for number, data in files_of.items() if data}


def _earlier(remote: Remote, pod: PodView, most: int) -> list[int]:
    """Attempts that ended in this pod, which runs."""
    try:
        names = remote.names(_EARLIER) if most else []
    except NotFound:
        return []
    numbers = [int(name) for name in names if name.isascii() and name.isdigit() and len(name) < 7]
    return sorted(number for number in numbers if pod.attempt <= number < most)


def _read(remote: Remote, path: str) -> bytes:
    try:
        return _bounded(remote.cat(path))
    except NotFound:
        return b""


def _log_tail(client: Client, snapshot: RunSnapshot, pod: PodView) -> bytes:
    namespace = snapshot.record.namespace
    with client.log(pod.name, namespace=namespace, tail=TAIL, idle_s=READ_S, patience_s=READ_S) as stream:
        return _bounded(iter(stream))


def _bounded(blocks: Iterator[bytes]) -> bytes:
    data = bytearray()
    for block in blocks:
        data += block
        if len(data) > MOST_BYTES:
            break
    return bytes(data)


def log_copies(log: bytes) -> dict[int | None, bytes]:
    """The files of metrics that a launcher has written on its pod's log, by the attempt that they are marked with, None
    for the pod's own. Pure."""
    parts: dict[int | None, dict[int, bytes]] = {}
    for match in map(_COPY.match, log.split(b"\n")):
        if match:
            parts.setdefault(int(match[1]) if match[1] else None, {})[int(match[2])] = match[3]
    copies = {mark: _unpacked(own) for mark, own in list(parts.items())[-MOST_EARLIER:]}
    return {mark: data for mark, data in copies.items() if data}


def _unpacked(parts: dict[int, bytes]) -> bytes:
    try:
        packed = base64.b64decode(b"".join(parts[number] for number in sorted(parts)), validate=True)
        return zlib.decompressobj().decompress(packed, MOST_BYTES)
    except (ValueError, zlib.error):
        return b""


def _from_storage(
    client: Client, snapshot: RunSnapshot, missing: list[tuple[int, str]], notice: Notice
) -> Iterator[tuple[tuple[int, str], bytes]]:
    """Kept files of nodes whose pods have ended; none of a run without a storage, or of a run that expired."""
    record, state = snapshot.record, snapshot.state
    ended = [key for key in missing if state.is_final or key[0] < state.attempt]
    if not ended:
        return
    if record.storage is None or state.expired is not None:  # no Job vouches for the storage of an expired run
        notice(f"metrics of {listing([node for _, node in ended], 3)} went with their pods: the run had no storage")
        return
    from longboat.engines.kubernetes.exec.helper_pod import HelperPod

    try:
        with HelperPod.of_run(client, record, [STORAGE]) as helper:
            for attempt, node in ended:
                try:
                    path = f"{STORAGE}/{record.storage.folder}/logs/{attempt}/{node}/{NAME}"
                    yield (attempt, node), _bounded(helper.cat(path))
                except NotFound:
                    continue
    except LongboatError as error:
        notice(f"metrics cannot be read from the run's storage: {error.message}")

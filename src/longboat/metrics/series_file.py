"""Reader of the launchers' files of metrics (`launcher/sampling/series_file.py`), and the joining of a run's nodes and
attempts into one value. Pure.

In a cluster the files come out of somebody else's pod: anything may be in them, and what is not in order is left out.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from longboat.core.jobs import Value
from longboat.metrics.values import RunMetrics, Sample, Software, StepPoint

NAME = "metrics.jsonl"
MOST_BYTES = 16 << 20
"""Of one node's file: launchers keep far below it."""
MOST_SERIES = 2000
"""Of one run: more names than that are no curves that anybody looks at."""
MOST_NUMBER = 1 << 62  # of steps, ranks and times that are meant
COLUMNS_MAX = 32  # of one kind; launchers write about ten
_TIMES = (0.0, 1e11)  # seconds since 1970, until the year 5138: others are not times
_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+!-]{0,99}")
_MODEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._+()/-]{0,95}")


class NodeFile(Value, frozen=True):
    """What one node's file holds."""

    node: str = ""
    attempt: int = 0
    steps: dict[str, dict[int, list[StepPoint]]] = {}  # by metric and rank
    events: dict[str, list[StepPoint]] = {}  # by source and tag of TensorBoard's files, with a line break between
    ranks: dict[int, dict[str, list[Sample]]] = {}
    machine: dict[str, list[Sample]] = {}
    gpus: dict[str, dict[str, list[Sample]]] = {}
    software: dict[str, Any] = {}  # fields of the header: python, packages, driver, gpus


def parse(data: bytes, *, node: str, attempt: int) -> NodeFile:
    """One node's file. `node` and `attempt` are what the reader knows of it; the file's own word is not asked for."""
    file = NodeFile(node=node, attempt=attempt, steps={}, events={}, ranks={}, machine={}, gpus={}, software={})
    columns: dict[str, list[str]] = {}
    for line in data[:MOST_BYTES].split(b"\n"):
        try:
            row = msgspec.json.decode(line) if line else None
        except (msgspec.DecodeError, RecursionError, UnicodeError):
            continue
        if isinstance(row, dict):
            columns.update(_columns(row.get("columns")))
            file.software.update({name: row[name] for name in ("python", "packages", "driver", "gpus") if name in row})
        elif isinstance(row, list) and len(row) > 3 and _is_time(row[1]):
            _add(file, row, columns)
    return file


def _columns(raw: object) -> dict[str, list[str]]:
    if not isinstance(raw, dict):
        return {}
    return {
        str(kind): [str(name)[:120] for name in names[:COLUMNS_MAX]]
        for kind, names in raw.items()
        if isinstance(names, list)
    }


def software_of(files: Sequence[NodeFile]) -> Software:
    """What the nodes of one attempt say of themselves: versions by name, and nothing that is none."""
    packages, types = dict[str, str](), dict[str, int]()
    for file in files:
        raw = file.software.get("packages")
        for name, version in list(raw.items() if isinstance(raw, dict) and not packages else ())[:MOST_SERIES]:
            if _is_word(name) and _is_word(version):
                packages[name] = version
        raw = file.software.get("gpus")
        for device in list(raw.values() if isinstance(raw, dict) else ())[:MOST_SERIES]:
            kind = device[1] if isinstance(device, list) and len(device) > 1 else None
            if isinstance(kind, str) and _MODEL.fullmatch(kind):
                types[kind] = types.get(kind, 0) + 1
    return Software(
        packages=packages, gpus=types, python=_first_word(files, "python"), driver=_first_word(files, "driver")
    )


def _first_word(files: Sequence[NodeFile], name: str) -> str:
    return next((str(word) for file in files if _is_word(word := file.software.get(name))), "")


def _is_word(value: object) -> bool:
    return isinstance(value, str) and _WORD.fullmatch(value) is not None


def _add(file: NodeFile, row: list[Any], columns: Mapping[str, list[str]]) -> None:
    kind, at, key = row[0], float(row[1]), row[2]
    if kind in ("step", "event") and len(row) > 4 and _is_count(row[3]) and isinstance(row[4], dict):
        for name, value in row[4].items():
            number = _number(value)
            if kind == "event":
                _put(file.events, f"{key}\n{name}", (int(row[3]), at, number))
            elif _is_count(key) and (name in file.steps or len(file.steps) < MOST_SERIES):
                file.steps.setdefault(name, {}).setdefault(int(key), []).append((int(row[3]), at, number))
        return
    series: dict[str, list[Sample]]
    if kind == "node":
        series = file.machine
    elif kind == "rank" and _is_count(key) and (key in file.ranks or len(file.ranks) < MOST_SERIES):
        series = file.ranks.setdefault(int(key), {})
    elif kind == "gpu" and (str(key) in file.gpus or len(file.gpus) < MOST_SERIES):
        series = file.gpus.setdefault(str(key), {})
    else:
        return
    for name, value in zip(columns.get(str(kind), ()), row[3:]):
        if isinstance(value, (int, float)) and abs(value) < MOST_NUMBER:
            series.setdefault(name, []).append((at, float(value)))


def _put(series: dict[str, list[StepPoint]], name: str, point: StepPoint) -> None:
    if name in series or len(series) < MOST_SERIES:
        series.setdefault(name, []).append(point)


def _number(value: object) -> float:
    try:
        return float(value) if isinstance(value, (int, float)) else math.nan
    except OverflowError:  # an integer of hundreds of digits
        return math.nan


def _is_time(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and _TIMES[0] < value < _TIMES[1]


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < MOST_NUMBER


def join(run: str, files: Iterable[NodeFile]) -> RunMetrics:
    """All nodes and attempts of a run as one value.

    A metric is that of the lowest rank that reports it. Where an attempt went on from an earlier step than the attempt
    before it had reached, the later attempt counts from there on.
    """
    ordered = sorted(files, key=lambda file: file.attempt)
    attempts = sorted({file.attempt for file in ordered})
    by_attempt = [_series_of([file for file in ordered if file.attempt == attempt]) for attempt in attempts]
    system: dict[str, dict[str, list[Sample]]] = {}
    nodes: dict[str, dict[str, list[Sample]]] = {}
    for file in ordered:
        for rank, samples in sorted(file.ranks.items()):
            _extend(system.setdefault(str(rank), {}), samples)
        _extend(nodes.setdefault(file.node, {}), file.machine)
        for gpu, samples in sorted(file.gpus.items()):
            _extend(nodes.setdefault(f"{file.node}/gpu{gpu}", {}), samples)
    return RunMetrics(
        run=run,
        series={name: tuple(points) for name, points in _resumed(by_attempt).items()},
        system=_sorted_samples(dict(sorted(system.items(), key=lambda item: int(item[0])))),
        nodes=_sorted_samples(nodes),
        step_times=step_times(ordered),
        software=software_of([file for file in ordered if file.attempt == attempts[-1]]) if attempts else Software(),
    )


def step_times(files: Sequence[NodeFile]) -> dict[str, tuple[Sample, ...]]:
    """Seconds per step of each rank, between reports of one attempt; of its metric with most reports."""
    times: dict[int, list[Sample]] = {}
    for file in files:
        longest: dict[int, list[StepPoint]] = {}
        for by_rank in file.steps.values():
            for rank, points in by_rank.items():
                if len(points) > len(longest.get(rank, ())):
                    longest[rank] = points
        for rank, points in longest.items():
            ordered = _in_order(points)
            pairs = zip(ordered, ordered[1:])
            times.setdefault(rank, []).extend(
                (after[1], (after[1] - before[1]) / (after[0] - before[0])) for before, after in pairs
            )
    return {
        str(rank): tuple((at, value) for at, value in sorted(values) if value >= 0)
        for rank, values in sorted(times.items())
    }


def _extend(target: dict[str, list[Sample]], samples: Mapping[str, Sequence[Sample]]) -> None:
    for name, values in samples.items():
        target.setdefault(name, []).extend(values)


def _sorted_samples(series: Mapping[str, Mapping[str, list[Sample]]]) -> dict[str, dict[str, tuple[Sample, ...]]]:
    return {key: {name: tuple(sorted(values)) for name, values in each.items()} for key, each in series.items()}


def _series_of(files: Sequence[NodeFile]) -> dict[str, list[StepPoint]]:
    """The metrics of one attempt: the trainer's own, then those of event files that have another name."""
    series: dict[str, list[StepPoint]] = {}
    for name in dict.fromkeys(name for file in files for name in file.steps):
        by_rank = {rank: points for file in files for rank, points in file.steps.get(name, {}).items()}
        series[name] = _in_order(by_rank[min(by_rank)])
    for name, points in _named_events(files).items():
        series.setdefault(name, _in_order(points))
    return series


def _named_events(files: Sequence[NodeFile]) -> dict[str, list[StepPoint]]:
    """Event files' scalars by tag; those of several folders with the part of the folder in which they differ."""
    by_key: dict[str, list[StepPoint]] = {}
    for file in files:
        for key, points in file.events.items():
            by_key.setdefault(key, points)
    folders = sorted({key.partition("\n")[0] for key in by_key})
    parts = [folder.split("/") for folder in folders]
    shared = 0
    while len(parts) > 1 and all(len(each) > shared and each[shared] == parts[0][shared] for each in parts):
        shared += 1
    names = {folder: "/".join(folder.split("/")[shared:]) if len(parts) > 1 else "" for folder in folders}
    return {
        "/".join(filter(None, (names[folder], tag))): points
        for (folder, _, tag), points in ((key.partition("\n"), points) for key, points in sorted(by_key.items()))
    }


def _in_order(points: Sequence[StepPoint]) -> list[StepPoint]:
    """By step, the later report of a step only."""
    return sorted({point[0]: point for point in sorted(points, key=lambda point: point[1])}.values())


def _resumed(by_attempt: Sequence[Mapping[str, list[StepPoint]]]) -> dict[str, list[StepPoint]]:
    series: dict[str, list[StepPoint]] = {}
    for attempt in by_attempt:
        for name, points in attempt.items():
            if points:
                first = points[0][0]
                series[name] = [*(point for point in series.get(name, ()) if point[0] < first), *points]
    return series

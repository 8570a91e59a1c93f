"""The metrics of runs on this machine, from the files that their launchers keep, and what runs now on which GPUs."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from longboat.core.errors import LongboatError
from longboat.core.guards.decoding import decode
from longboat.core.runs import RunStatus
from longboat.engines.engine import Submission
from longboat.engines.local.queue.machine import observe_gpus
from longboat.engines.local.runfiles import RunFiles
from longboat.engines.local.supervise.attempt_files import Heartbeat, rank_statuses
from longboat.engines.shared.files import read_value
from longboat.engines.shared.home import Home
from longboat.launcher.sampling.packages import software
from longboat.metrics.judgements import with_figures
from longboat.metrics.series_file import MOST_BYTES, NAME, NodeFile, join, parse
from longboat.metrics.usage import gpus_of
from longboat.metrics.values import Activity, GpuUse, RunMetrics, Software, last_points

MOST_FRESH = 4 << 20
"""Bytes of a rank's steps of ten seconds, as the launcher reads them; a rank writes far less."""


def metrics_of_run(files: RunFiles, status: RunStatus) -> RunMetrics:
    metrics = join(status.name, node_files(files))
    if metrics.series or metrics.system:
        return metrics
    return last_points(status.name, status.step, status.metrics, status.ended or time.time(), metrics.software)


def node_files(files: RunFiles) -> list[NodeFile]:
    """The files of all nodes and attempts; one that cannot be read tells nothing."""
    parsed = []
    for attempt in files.attempts():
        for path in sorted(files.attempt_dir(attempt).glob(f"*/{NAME}")):
            fresh = fresh_rows(path.parent / "steps")  # before the file: what the launcher takes meanwhile is in both
            try:
                with path.open("rb") as file:
                    data = file.read(MOST_BYTES)
            except OSError:
                continue
            new = b"".join(row + b"\n" for row in fresh if row not in data)
            parsed.append(parse(data + new, node=path.parent.name, attempt=attempt))
    return parsed


def software_now(submission: Submission) -> Software:
    """As the ranks of a new run would find it; nothing of the packages where `setup` installs them."""
    job, environment = submission.job, {**os.environ, **submission.environment}
    gpus = Counter(gpu.type for gpu in observe_gpus(environment) if gpu.type) if job.gpus else {}
    if job.setup or not job.roles:
        return Software(gpus=dict(gpus))
    run = job.roles[0].run
    seen = software(run if isinstance(run, str) else list(run), environment, submission.base)
    return Software(python=seen.get("python", ""), packages=seen.get("packages", {}), gpus=dict(gpus))


def fresh_rows(folder: Path) -> list[bytes]:
    """Steps that the launcher has not taken yet, as rows of its file: it takes them up to ten seconds later, and a
    sweep decides by them now."""
    rows = []
    for path in sorted(folder.glob("*.series.taken")) + sorted(folder.glob("*.series")):
        rank = path.name.partition(".")[0]
        try:
            with path.open("rb") as file:
                lines = file.read(MOST_FRESH).split(b"\n")
        except OSError:
            continue
        for line in lines:
            try:
                step, at, numbers = decode(line, tuple[int, float, dict[str, float | None]])
                rows.append(msgspec.json.encode(["step", round(at, 3), int(rank), step, numbers]))
            except (msgspec.DecodeError, ValueError):  # cut, or nothing of ours
                continue
    return rows


def activity_of(home: Home, runs: Sequence[RunStatus], environment: Mapping[str, str]) -> Activity:
    """The runs that have not ended, and all GPUs of this machine."""
    shown: list[RunStatus] = []
    held: dict[str, GpuUse] = {}
    for run in runs:
        if run.is_final:
            continue
        if run.phase != "pending":
            try:
                files = RunFiles(home.run_dir(run.name))
                state = files.state()
                ranks = rank_statuses(files, files.record(), state)
            except LongboatError:
                continue  # removed meanwhile
            run = with_figures(msgspec.structs.replace(run, ranks=tuple(ranks)), time.time())
            # From its first start to its end a run keeps its GPUs, also between attempts and before there are nodes.
            held.update({id: GpuUse(node="this machine", uuid=id, run=run.name, user=run.user) for id in state.gpus})
            for folder in sorted(path.parent for path in files.attempt_dir(run.attempt).glob("*/plan.json")):
                held.update(_held_gpus(folder, run))
        shown.append(run)
    free = {
        gpu.id: GpuUse(
            node="this machine", number=str(gpu.index), uuid=gpu.id, model=gpu.type or "", memory_total=gpu.memory
        )
        for gpu in observe_gpus(environment)
    }
    gpus = {**free, **{id: _with_model(gpu, free.get(id)) for id, gpu in held.items()}}
    return Activity(runs=tuple(shown), gpus=tuple(gpus.values()))


def _with_model(gpu: GpuUse, known: GpuUse | None) -> GpuUse:
    """What the machine knows of a GPU that no launcher has sampled yet."""
    if known is None or gpu.model:
        return gpu
    return msgspec.structs.replace(gpu, number=known.number, model=known.model, memory_total=known.memory_total)


def _held_gpus(folder: Path, run: RunStatus) -> dict[str, GpuUse]:
    """The GPUs of a node by id, with what its launcher samples of them."""
    plan = read_value(folder / "plan.json", dict[str, object]) or {}
    variables = plan.get("env")
    visible = str(variables.get("CUDA_VISIBLE_DEVICES", "")) if isinstance(variables, dict) else ""
    beat = read_value(folder / "beat.json", Heartbeat) or Heartbeat()
    sampled = {gpu.uuid: gpu for gpu in gpus_of(list(beat.gpus), folder.name)}
    return {
        id: msgspec.structs.replace(
            sampled.get(id) or GpuUse(node=folder.name, number=id if id.isdecimal() else "", uuid=id),
            run=run.name,
            user=run.user,
        )
        for id in (name.strip() for name in visible.split(","))
        if id
    }

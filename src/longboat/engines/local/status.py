"""The status of a run, observed from its files."""

from __future__ import annotations

import time
from pathlib import Path

from longboat.core.runs import RankStatus, RunStatus
from longboat.engines.local.records import LocalRecord, LocalState
from longboat.engines.local.runfiles import RunFiles
from longboat.engines.local.supervise.attempt_files import Heartbeat, reports_of
from longboat.engines.shared.files import read_value
from longboat.engines.shared.run_summary import brief
from longboat.engines.shared.secret_urls import redacted_job

ENGINE = "local"


def brief_status(record: LocalRecord, state: LocalState) -> RunStatus:
    return brief(ENGINE, record, state)


def full_status(files: RunFiles, record: LocalRecord, state: LocalState) -> RunStatus:
    import msgspec

    from longboat.storage.checkpoints import newest_complete

    ranks = rank_statuses(files, record, state)
    if record.checkpoint_store is None:
        newest: Path | str | None = newest_complete(Path(record.checkpoint_dir))
    else:
        newest = sent_checkpoint(files)
    return msgspec.structs.replace(
        brief_status(record, state),
        step=max((rank.step for rank in ranks if rank.step is not None), default=None),
        checkpoint=str(newest) if newest else None,
        checkpoint_dir=record.checkpoint_store or record.checkpoint_dir,
        artifacts_dir=str(files.artifacts),
        directory=str(files.directory),
        ranks=tuple(ranks),
        spec=redacted_job(record.job),
    )


def sent_checkpoint(files: RunFiles) -> str | None:
    """The newest that the object store has, as a launcher noted it."""
    for attempt in reversed(files.attempts()):
        for note in sorted(files.attempt_dir(attempt).glob("*/mirrored.json")):
            told = read_value(note, dict[str, str])
            if told and told.get("checkpoint"):
                return told["checkpoint"]
    return None


def rank_statuses(files: RunFiles, record: LocalRecord, state: LocalState) -> list[RankStatus]:
    """The ranks of the current attempt."""
    found = []
    now = time.time()
    folder = files.attempt_dir(state.attempt)
    for role in record.job.roles:
        for index in range(role.nodes):
            node = f"{role.name}-{index}"
            beat = read_value(folder / node / "beat.json", Heartbeat) or Heartbeat()
            reports = {report.rank: report for report in reports_of(folder / node)}
            for name, facts in beat.ranks.items():
                if not name.isdigit():
                    continue
                report = reports.get(int(name))
                signs = [
                    float(t) for t in (facts.get("step_time"), facts.get("output_time")) if isinstance(t, (int, float))
                ]
                alive = report is None and bool(facts.get("alive")) and not state.is_final
                step = facts.get("step")
                metrics = facts.get("metrics")
                found.append(
                    RankStatus(
                        rank=int(name),
                        role=role.name,
                        node=node,
                        alive=alive,
                        step=int(step) if isinstance(step, (int, float)) else None,
                        metrics=metrics if isinstance(metrics, dict) else {},
                        silent_s=max(0.0, now - max(signs)) if signs and alive else None,
                        exit_code=report.exit_code if report else None,
                    )
                )
    return sorted(found, key=lambda rank: rank.rank)

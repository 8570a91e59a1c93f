"""What cannot be the same when a run is run again: what its job leaves open, and what was seen then and is not now."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping

from longboat.core.words import listing
from longboat.engines.engine import Engine, Submission
from longboat.engines.lifecycle.resubmission import changed_since
from longboat.launcher.sampling.packages import software
from longboat.metrics.values import Software

MOST = 5
"""Packages of a line; `longboat compare` shows all of them."""


def notices_of(place: Engine, run: str, submission: Submission) -> list[str]:
    """One line for each input that is, or may be, another one now."""
    is_cluster = place.name != "local"
    images = place.status(run).images
    notices = changed_since(submission, is_cluster=is_cluster, images=images)
    if not is_cluster and not images:
        notices += changed_software(place.metrics_of(run).software, _software_now(submission))
    return notices


def changed_software(then: Software, now: Software) -> list[str]:
    """Of what was seen then alone; a row without a value now has nothing to say. Pure."""
    notices = []
    if then.python and now.python and then.python != now.python:
        notices.append(f"Python was {then.python}, and is {now.python} now")
    names = sorted({*then.packages, *now.packages}, key=str.lower)
    changed = [
        f"{name} {then.packages.get(name, 'was not there')} -> {now.packages.get(name, 'gone')}"
        for name in names
        if then.packages.get(name) != now.packages.get(name)
    ]
    if then.packages and now.packages and changed:
        notices.append(f"packages have changed: {listing(changed, MOST)}")
    kinds = set(now.gpus) - set(then.gpus)
    if then.gpus and kinds:
        notices.append(f"it ran on {_gpus(then.gpus)}, and this machine has {_gpus(now.gpus)}")
    return notices


def _gpus(counts: Mapping[str, int]) -> str:
    return listing([f"{count} x {kind}" for kind, count in counts.items()], MOST)


def _software_now(submission: Submission) -> Software:
    """As the ranks of a new run would find it; nothing of the packages where `setup` installs them."""
    from longboat.engines.local.queue.machine import observe_gpus

    job, environment = submission.job, {**os.environ, **submission.environment}
    gpus = Counter(gpu.type for gpu in observe_gpus(environment) if gpu.type) if job.gpus else {}
    if job.setup or not job.roles:
        return Software(gpus=dict(gpus))
    found = software(job.roles[0].run, environment, submission.base)
    return Software(python=found.get("python", ""), packages=found.get("packages", {}), gpus=dict(gpus))

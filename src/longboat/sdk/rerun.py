"""Differences to expect when a run is run again: what its job leaves open, and software that has changed since."""

from __future__ import annotations

from collections.abc import Mapping

from longboat.core.words import listing
from longboat.engines.engine import Engine, Submission
from longboat.engines.lifecycle.resubmission import changed_since
from longboat.metrics.values import Software

MOST = 5
"""Packages of a line; `longboat compare` shows all of them."""


def notices_of(place: Engine, run: str, submission: Submission) -> list[str]:
    """One line for each input that is, or may be, another one now."""
    is_cluster = place.name != "local"
    images = place.status(run).images
    notices = changed_since(submission, is_cluster=is_cluster, images=images)
    if not is_cluster and not images:
        from longboat.engines.local.metrics import software_now

        notices += changed_software(place.metrics_of(run).software, software_now(submission))
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

"""Runs in the user's own folder, without a working copy (`--in-place`): what they cannot have."""

from __future__ import annotations

import os

from longboat.core.elastic.sizes import is_elastic
from longboat.core.jobs import Job
from longboat.engines.refusals import Problem, refusal


def check_in_place(job: Job, *, base: str, folder: str) -> None:
    """Raise Refused for what a run in the user's own folder cannot have: nothing is put into it, and it may change."""
    problems: list[Problem] = []
    if job.retries.count:
        problems.append(("`retries`: a retry would run whatever the files are by then", "drop `retries`"))
    if is_elastic(job):
        problems.append(
            ("`nodes` as a range: another size would run whatever the files are by then", "name one number")
        )
    if job.data:
        problems.append(("`data`: imports would be put into your folder", "fetch it once by hand"))
    for volume in job.volumes:
        source = os.path.join(base, os.path.expanduser(volume.path)) if volume.path else ""
        if os.path.realpath(source) != os.path.realpath(os.path.join(folder, volume.target)):
            reason = f"`volumes.{volume.target}` would be put into your folder"
            problems.append((reason, f"make it a link there: ln -s ... {volume.target}"))
    if problems:
        raise refusal("this job cannot run in place (--in-place)", problems)

"""Names of a run's objects and addresses of its pods. Pure; everything stays within the 63 characters of a DNS label.

A run is named `R` (at most 40 characters), its attempt `R-a<k>`, a role's Job `R-a<k>-<role>`. Where a role's name
would make a pod's host name too long it is shortened, with a hash of the whole name at its end; the label
`longboat.dev/role` always has all of it. The same run, attempt and roles give the same names every time.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence

from longboat.core.errors import Refused
from longboat.core.jobs import Job
from longboat.engines.kubernetes.records import WorkloadKind
from longboat.engines.shared.home import check_run_id as check_run_id

LABEL_LIMIT = 63  # of a label's value, and of a DNS label, as Kubernetes has it

DOMAIN = "longboat.dev"
MANAGED_BY = "app.kubernetes.io/managed-by"
OURS = f"{MANAGED_BY}=longboat"
RUN = f"{DOMAIN}/run"
ROLE = f"{DOMAIN}/role"
ATTEMPT = f"{DOMAIN}/attempt"
USER = f"{DOMAIN}/user"
KIND = f"{DOMAIN}/kind"
TEMPLATE_OF = f"{DOMAIN}/template-of"
"""The run of a retry template, which is no part of any attempt and so has no label RUN."""
ENDED = f"{DOMAIN}/ended"
HELD = f"{DOMAIN}/held"
"""Label of a workload that a budget holds back: the autoscaler makes no room for it."""
BUDGETS = f"{DOMAIN}/budgets"
"""Annotation of a Namespace: the budgets of its runs."""
NODES = f"{DOMAIN}/nodes"
"""Annotation of the Job of an elastic role: the numbers of nodes that it may have."""
CHAINED = f"{DOMAIN}/chained"
"""Label of a workload that waits for other runs: the autoscaler makes no room for it yet."""
"""A record that is final carries it, so that lists of what still goes on leave it out."""
KEEP = f"{DOMAIN}/keep-s"
"""Annotation of a record: seconds for which the run's objects stay after its end."""
EXPIRED_RUN = "expired-run"
"""KIND of the record that is left of an expired run."""
EXPIRED_SUFFIX = ".expired"
"""No run is called so: a record that owns nothing stands beside those that do, until theirs are gone."""
INDEX = "batch.kubernetes.io/job-completion-index"
SYSTEM = "longboat-system"
"""The namespace of the controller and the autoscaler."""

_HASH_LENGTH = 5  # 32^5 names: two of one run do not collide, and it is tried again if they do
_LETTERS = "abcdefghijklmnopqrstuvwxyz234567"


def expired_name(run: str) -> str:
    return f"{run}{EXPIRED_SUFFIX}"


def attempt_name(run: str, attempt: int) -> str:
    """Of the attempt's Secret, Service and JobSet; the subdomain of its pods."""
    return f"{run}-a{attempt}"


def template_name(run: str) -> str:
    """Of the JobSet from which later attempts are copied; the beginning of the names of such Jobs."""
    return f"{run}-t"


def env_secret(run: str) -> str:
    return f"{run}-env"


def role_names(job: Job, run: str, attempt: int, kind: WorkloadKind) -> dict[str, str]:
    """What each role is called in names of objects: its own name where the host names of its pods stay short enough.

    JobSet demands it of the pods' names too, which end with five random characters.
    """
    taken = {role.name for role in job.roles}
    names: dict[str, str] = {}
    for role in job.roles:
        numbers = len(f"-{(role.max_nodes or role.nodes) - 1}") + (len("-0-12345") if kind == "jobset" else 0)
        room = LABEL_LIMIT - len(attempt_name(run, attempt)) - len("-") - numbers
        if len(role.name) <= room:
            names[role.name] = role.name
            continue
        names[role.name] = _shortened(role.name, room, taken)
        taken.add(names[role.name])
    return names


def _shortened(name: str, room: int, taken: set[str]) -> str:
    length = min(_HASH_LENGTH, room - 1)
    for salt in range(1000 if length > 0 else 0):
        short = name[: room - length] + _hash(f"{name}\0{salt}")[:length]
        if short not in taken:
            return short
    raise Refused(f"a pod's name of 63 characters has no room for the role {name}", hint="give the run a shorter name")


def _hash(text: str) -> str:
    """Lower-case letters and digits only, as a role's name has."""
    return "".join(_LETTERS[byte & 31] for byte in hashlib.sha256(text.encode()).digest()[:_HASH_LENGTH])


def job_name(run: str, attempt: int, role: str) -> str:
    """Of the Job of a role, `role` as `role_names` calls it."""
    return f"{attempt_name(run, attempt)}-{role}"


def hosts(job: Job, run: str, attempt: int, kind: WorkloadKind) -> list[str]:
    """Host names of all pods, in node-rank order."""
    short = role_names(job, run, attempt, kind)
    middle = "-0" if kind == "jobset" else ""
    return [
        f"{job_name(run, attempt, short[role.name])}{middle}-{index}"
        for role in job.roles
        for index in range(role.nodes)
    ]


def addresses(job: Job, run: str, attempt: int, kind: WorkloadKind) -> list[str]:
    """Addresses of all pods inside their namespace, in node-rank order: `<host>.<subdomain>`."""
    subdomain = attempt_name(run, attempt)
    return [f"{host}.{subdomain}" for host in hosts(job, run, attempt, kind)]


def label_value(text: str) -> str:
    """The text as a label's value, with other characters replaced: `anna@example.org` is anna-example.org."""
    clean = re.sub(r"[^A-Za-z0-9._-]", "-", text)[:LABEL_LIMIT]
    return clean.strip("-_.")


def selector(labels: Sequence[tuple[str, str]]) -> str:
    """A label selector for a query: `a=b,c=d`."""
    return ",".join(f"{key}={value}" for key, value in labels)


def pods_of(run: str, attempt: int | None = None) -> str:
    """The selector of a run's pods, or of those of one attempt."""
    pairs = [(MANAGED_BY, "longboat"), (RUN, run)]
    if attempt is not None:
        pairs.append((ATTEMPT, str(attempt)))
    return f"{selector(pairs)},{ROLE}"

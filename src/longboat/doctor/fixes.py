"""Fixes that are safe: each can be done any number of times, and takes away nothing that anybody uses."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

from longboat.clusters.hosts.pool import Hosts
from longboat.core.errors import EngineError
from longboat.core.words import counted
from longboat.doctor.examine import ClusterTarget, Diagnosis
from longboat.doctor.facts import CLIENT, HOSTS, LEFTOVERS, Seen
from longboat.doctor.observe.cluster import remove_leftovers
from longboat.doctor.observe.hosts import fix_host


def fix_cluster(target: ClusterTarget, diagnosis: Diagnosis) -> dict[str, str]:
    """Fix what can be fixed; check -> what was done. Raises EngineError."""
    done = {}
    for finding in diagnosis.findings:
        fix = FIXES.get(finding.name)
        if fix is not None and finding.fix is not None:
            text = fix(target, diagnosis.seen)
            if text:
                done[finding.name] = text
    return done


def fix_hosts(hosts: Hosts, diagnosis: Diagnosis) -> dict[str, str]:
    """Host -> what was done there. Raises EngineError."""
    reports = {report.name: report for report in diagnosis.seen.values.get(HOSTS, ())}
    answers = hosts.each(lambda host: fix_host(host, reports[host.name]), list(reports))
    return {name: text for name, text in answers.values.items() if text}


def _close_kubeconfig(_target: ClusterTarget, seen: Seen) -> str:
    """Files of yours that everybody may read. Its group may share one, and /etc holds those of the whole machine."""
    closed = []
    for path, mode in seen[CLIENT].files:
        try:
            status = os.stat(path)
            if not mode & 0o007 or status.st_uid != os.getuid() or Path(path).resolve().is_relative_to("/etc"):
                continue
            os.chmod(path, stat.S_IMODE(status.st_mode) & ~0o007)
        except OSError as error:
            raise EngineError(f"{path}: {error.strerror}", hint="its owner can change it") from None
        closed.append(path)
    return f"{', '.join(closed)}: not readable by others any more" if closed else ""


def _remove_leftovers(target: ClusterTarget, seen: Seen) -> str:
    left = seen[LEFTOVERS]
    remove_leftovers(target.client, left)
    count = len(left.helper_pods) + len(left.claims)
    return f"removed {counted(count, 'object')} that killed commands left" if count else ""


FIXES: dict[str, Callable[[ClusterTarget, Seen], str]] = {
    "kubeconfig mode": _close_kubeconfig,
    "leftovers": _remove_leftovers,
}

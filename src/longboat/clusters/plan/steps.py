"""Steps of a plan, as values: one script on one host each, with the reason and what must have happened before."""

from __future__ import annotations

import hashlib
from typing import Literal

from longboat.core.jobs import Value

StepKind = Literal["script", "init", "join", "packages", "images", "program", "manifest", "drain", "ready", "restart"]
RESTART_HELPS = 75
"""Exit code of a script of kind `restart` that asks for a restart of its host (sysexits: try again later)."""


class Step(Value, frozen=True):
    """One change of one host. `script` is prefixed with the journal's functions; it can be repeated after an
    interruption.
    """

    host: str
    name: str
    """Short, the column of the table: packages, containerd, join."""
    title: str
    """What it does, for `--dry-run`."""
    script: str
    kind: StepKind = "script"
    """What goes through stdin: nothing, kubeadm's configuration of init or join, packages, images, a program, a
    manifest.
    `drain` and `ready` are no scripts on the host: its node is drained or waited for through the control plane.
    `restart`: nothing; where the script fails the host is restarted, and it is run once more.
    """
    needs: tuple[str, ...] = ()
    """Steps of other hosts that come first."""
    timeout_s: float = 300.0
    """Packages and images of a slow mirror take minutes; a script that hangs is noticed all the same."""

    @property
    def id(self) -> str:
        return f"{self.host}/{self.name}"

    @property
    def key(self) -> str:
        """Hash of the script: a step with other content is another step."""
        return hashlib.sha256(self.script.encode()).hexdigest()[:16]


class Kept(Value, frozen=True):
    """A step that is not needed, with the reason."""

    host: str
    name: str
    reason: str


class HostPlan(Value, frozen=True):
    host: str
    steps: tuple[Step, ...] = ()
    kept: tuple[Kept, ...] = ()


class ClusterPlan(Value, frozen=True):
    """All changes that `up` would make, by host."""

    hosts: tuple[HostPlan, ...] = ()

    @property
    def steps(self) -> tuple[Step, ...]:
        return tuple(step for host in self.hosts for step in host.steps)

    @property
    def is_empty(self) -> bool:
        return not self.steps

"""Folders of an attempt: working copies, scratch, pipes, the plan that launchers read, and how nodes are to end."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from longboat.core.errors import EngineError
from longboat.core.jobs import Value
from longboat.core.layouts import Layout, NodeSite, lay_out, ports_needed, scrubbed
from longboat.engines.local.containers.choice import CONTAINER_SCRATCH
from longboat.engines.local.queue.gpu_isolation import node_devices
from longboat.engines.local.queue.machine import Gpu
from longboat.engines.local.queue.slots import SHARED, addresses_in
from longboat.engines.local.records import LocalRecord
from longboat.engines.local.runfiles import AttemptNode, RunFiles
from longboat.engines.local.supervise.short_tmpdir import short_path
from longboat.engines.shared.files import disk, make_folder, write_bytes, write_value
from longboat.engines.shared.home import Home

PEER_TIMEOUT_S = 600.0
"""Setup of the slowest node is waited for, which may install packages."""


class Environment(Value, frozen=True):
    """The Python environment of the ranks: what the launcher is told about setup."""

    setup: str | None = None
    lock: str | None = None
    path: tuple[str, ...] = ()
    variables: dict[str, str] = {}
    marker: str | None = None  # to be written once setup has succeeded


def layout_of(
    record: LocalRecord, *, attempt: int, ports: Sequence[tuple[int, ...]], addresses: Sequence[str] = ()
) -> Layout:
    """`addresses`: those of the run's nodes; without them as they might be."""
    given = addresses or addresses_in(SHARED, len(ports))
    sites = [NodeSite(address=address, ports=own) for address, own in zip(given, ports, strict=True)]
    return lay_out(record.job, run=record.name, uid=record.uid, attempt=attempt, sites=sites)


def example_ports(record: LocalRecord) -> list[tuple[int, ...]]:
    """Ports as they might be, for a dry run."""
    given, port = [], 20000
    for count in ports_needed(record.job):
        given.append(tuple(range(port, port + count)))
        port += count
    return given


class AttemptPreparation:
    """Makes the folders of one attempt."""

    def __init__(
        self,
        home: Home,
        files: RunFiles,
        record: LocalRecord,
        layout: Layout,
        before_node: Callable[[], None] = lambda: None,
    ) -> None:
        """`before_node` may raise: of many nodes not all need be made when the run is stopped."""
        self._before_node = before_node
        self._home = home
        self._files = files
        self._record = record
        self._layout = layout
        self._folder = files.attempt_dir(layout.attempt)
        self.nodes = [AttemptNode(node, self._folder / node.name) for node in layout.nodes]
        # The same for every node: made once, for runs of a thousand.
        self._ready = {node.name: str(node.directory / "ready.json") for node in self.nodes}
        self._peers = [{"node": node.name, "address": node.layout.address} for node in self.nodes]
        self._unset = scrubbed(os.environ)

    def make(
        self,
        *,
        gpus: Sequence[tuple[Gpu, ...]],
        links: dict[str, Path],
        environment: Environment,
        resume_from: str | None,
        kept: int | None = None,
    ) -> None:
        """`kept`: the attempt whose working copies are gone on with, and whose launchers go on: a restart in place."""
        if kept is not None:
            environment = msgspec.structs.replace(environment, setup=None, lock=None)
        make_folder(Path(self._record.checkpoint_dir))
        make_folder(self._files.artifacts)
        for node, given in zip(self.nodes, gpus, strict=True):
            self._before_node()
            for name in ("scratch", "pipes", "logs"):
                make_folder(node.directory / name)
            if kept is None:
                self._make_work(node, links)
            else:
                work = os.path.realpath(self._files.attempt_dir(kept) / node.name / "work")
                with disk(f"link {node.work}"):
                    os.symlink(os.path.relpath(work, os.path.realpath(node.directory)), node.work)
            for pipe in node.pipes():
                with disk(f"create {pipe}"):
                    os.mkfifo(pipe, 0o600)
            plan = self._plan(node, given, environment, resume_from)
            plan["hidden_devices"] = self._hidden_devices(node, given, gpus) if kept is None else []  # they still are
            write_bytes(node.plan, msgspec.json.format(msgspec.json.encode(plan), indent=1))

    def _make_work(self, node: AttemptNode, links: dict[str, Path]) -> None:
        """The working copy; in place, a link to the folder itself, which is never removed with the attempt."""
        self._check_out(node)
        outside = {path: Path(target) for path, target in self._record.outside.items()}
        for target, source in {**outside, **links}.items():
            self._link(node, target, source)

    def _check_out(self, node: AttemptNode) -> None:
        if self._record.in_place is not None:
            with disk(f"link {node.work}"):
                os.symlink(self._record.in_place, node.work)
            return
        make_folder(node.work)
        if self._record.bundle is not None:
            from longboat.bundles.store import BundleStore

            BundleStore(self._home.folder("bundles")).check_out(self._record.bundle, node.work)

    def _link(self, node: AttemptNode, target: str, source: Path) -> None:
        """Make a folder of this machine appear in the working copy."""
        from longboat.bundles.workdir import link_into

        with disk(f"link {node.work / target}"):
            link_into(os.fspath(node.work), target, os.fspath(source))

    def _plan(
        self, node: AttemptNode, gpus: tuple[Gpu, ...], environment: Environment, resume_from: str | None
    ) -> dict[str, Any]:
        job, layout = self._record.job, node.layout
        role = job.role(layout.role)
        is_contained = self._record.image_of(role.name) is not None
        if is_contained:  # its Python is the image's: setup runs in every container, as it does in every pod
            environment = Environment(setup=job.setup)
        visible = ",".join(gpu.id for gpu in gpus)
        env = {
            **environment.variables,
            **layout.env,
            "CUDA_VISIBLE_DEVICES": visible,
            "HIP_VISIBLE_DEVICES": visible,
            "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        }
        if self._record.python_folders:
            given = env.get("PYTHONPATH", self._record.environment.get("PYTHONPATH", ""))
            env["PYTHONPATH"] = python_path(given, self._record.root, str(node.work), self._record.python_folders)
        return {
            "run": self._record.name,
            "uid": self._record.uid,
            "attempt": self._layout.attempt,
            "role": layout.role,
            "index": layout.index,
            "node": layout.name,
            "node_rank": layout.node_rank,
            "address": layout.address,
            "directory": str(node.directory),
            "workdir": self._record.in_place or str(node.work),
            "scratch": self._scratch(node, is_contained=is_contained),
            "starter": layout.starter,
            "command": layout.command,
            "env": env,
            "mask": [secret.name for secret in job.secrets],
            "unset": [] if is_contained else self._unset,
            "path_prepend": list(environment.path),
            "path_append": [] if is_contained else list(self._record.path_append),
            "ranks": [{"rank": r.rank, "local_rank": r.local_rank, "env": r.env} for r in layout.ranks],
            "setup": environment.setup,
            "setup_lock": environment.lock,
            "peers": self._peers,
            "wait": {
                "kind": "files" if len(self.nodes) > 1 else "none",
                "timeout_s": PEER_TIMEOUT_S,
                "files": self._ready,
            },
            "grace_s": job.grace_s,
            "stall_s": job.stall_s,
            "must_hide": self._record.gpu_isolation == "required",
            "memory_limit": role.resources.memory,
            "checkpoint_dir": self._record.checkpoint_dir,
            "checkpoint_writer": self._writer(),
            "artifacts_dir": str(self._files.artifacts),
            "resume_from": resume_from,
            "checkpoint_store": self._record.checkpoint_store,
            "keep_checkpoints": job.checkpoints.rule,
            "mpi": self._mpi(node),
            "echo": False,
            "stays": None if is_contained or job.retries.restart == "new" else self._stays(),
        }

    def _stays(self) -> str | None:
        """Of an attempt after which another may come: the launcher stays then, and says so here."""
        return str(self._files.wake) if self._layout.attempt < self._record.job.retries.last_attempt else None

    def _hidden_devices(
        self, node: AttemptNode, own: tuple[Gpu, ...], all_nodes: Sequence[tuple[Gpu, ...]]
    ) -> list[str]:
        if self._record.image_of(node.layout.role) is not None:
            return []
        return node_devices(self._record.gpu_isolation, own, [gpu for gpus in all_nodes for gpu in gpus])

    def _scratch(self, node: AttemptNode, *, is_contained: bool) -> str:
        if is_contained:
            return CONTAINER_SCRATCH
        return str(short_path(node.directory / "scratch", self._home.root, tidies=node is self.nodes[0]))

    def _writer(self) -> str:
        """The node whose first rank writes the run's checkpoints: the first that decides success."""
        ends = self._record.job.ends
        deciding = [node.name for node in self.nodes if node.layout.role in ends and node.layout.starter != "follower"]
        return (deciding or [self.nodes[0].name])[0]

    def _mpi(self, node: AttemptNode) -> dict[str, Any] | None:
        if node.layout.starter not in ("mpirun", "follower"):
            return None
        token = self._folder / "mpi-token"
        if not token.exists():
            write_bytes(token, os.urandom(24).hex().encode())
        return {
            "token_file": str(token),
            "port": node.layout.ports[-1],
            "ports": {other.name: other.layout.ports[-1] for other in self.nodes},
        }


def python_path(given: str, root: str, work: str, folders: Iterable[str]) -> str:
    """The PYTHONPATH of the ranks: as given, but what leads into the tree leads into the working copy, and these
    folders of it."""
    entries = []
    for entry in filter(None, given.split(os.pathsep)):
        inner = os.path.relpath(os.path.realpath(entry), root) if os.path.isabs(entry) else ".."
        entries.append(entry if inner.startswith("..") else os.path.normpath(os.path.join(work, inner)))
    entries += [os.path.normpath(os.path.join(work, folder)) for folder in folders]
    return os.pathsep.join(dict.fromkeys(entries))


def note_end(directory: Path, reason: str, grace_s: float) -> signal.Signals:
    """Write down for the launcher of this node why and how it is to end; the signal that has it look.

    On a full disk the job's own grace holds, and a stop has a signal of its own.
    """
    try:
        write_value(directory / "ending.json", {"reason": reason, "grace_s": grace_s})
    except EngineError:
        return signal.SIGTERM if reason == "stop" else signal.SIGUSR2
    return signal.SIGUSR2

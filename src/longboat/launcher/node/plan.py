"""The plan of one node: what the engine asks the launcher to do, as read from PLAN.json. Values only."""

from __future__ import annotations

import os

from .jsonfiles import read_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


TOLD = "told.json"
"""Why and how the node is to end, written before the SIGTERM of somebody who knows of Longboat."""


EXIT_KILLED = 137
"""The kernel's code for a launcher that was killed: a Job makes another pod for it, so that none ends so by itself."""
EXIT_REPLACED = 213
"""Only of the process: the Job of a pod that ends so makes another one (`core.errors.RUN_REPLACED_EXIT`)."""


class PlanError(Exception):
    """The plan is unreadable or incomplete."""


class RankPlan:
    __slots__ = ("env", "local_rank", "rank")

    def __init__(self, raw: dict[str, Any]) -> None:
        self.rank = int(raw["rank"])
        self.local_rank = int(raw.get("local_rank", 0))
        self.env: dict[str, str] = dict(raw.get("env") or {})


class NodePlan:
    """The fields of plan.json, documented in `docs/contributing/launcher.md`."""

    def __init__(self, raw: dict[str, Any]) -> None:
        self.run = str(raw["run"])
        self.uid = str(raw["uid"])
        self.attempt = int(raw.get("attempt", 0))
        self.role = str(raw["role"])
        self.index = int(raw.get("index", 0))
        self.node = str(raw.get("node") or "%s-%d" % (self.role, self.index))
        self.node_rank = int(raw.get("node_rank", 0))
        self.address = str(raw.get("address") or "127.0.0.1")
        self.directory = str(raw["directory"])
        self.workdir = str(raw["workdir"])
        self.scratch: str | None = raw.get("scratch")
        self.starter = str(raw.get("starter") or "longboat")
        self.command: str | list[str] = raw.get("command") or ""
        self.env: dict[str, str] = dict(raw.get("env") or {})
        self.mask: list[str] = list(raw.get("mask") or [])
        self.unset: list[str] = list(raw.get("unset") or [])
        self.path_prepend: list[str] = list(raw.get("path_prepend") or [])
        self.path_append: list[str] = list(raw.get("path_append") or [])
        self.library_path: list[str] = list(raw.get("library_path") or [])
        self.ranks = [RankPlan(rank) for rank in raw.get("ranks") or []]
        self.setup: str | None = raw.get("setup")
        self.setup_lock: str | None = raw.get("setup_lock")
        self.peers: list[dict[str, str]] = list(raw.get("peers") or [])
        self.pod = str(raw.get("pod") or self.node)  # as it was made: a spare plays the node of another one
        self.spares: list[str] = list(raw.get("spares") or [])
        wait = raw.get("wait") or {}
        self.wait_kind = str(wait.get("kind") or "none")
        self.wait_timeout_s = float(wait.get("timeout_s") or 600.0)
        self.wait_files: dict[str, str] = dict(wait.get("files") or {})
        self.grace_s = float(raw["grace_s"] if raw.get("grace_s") is not None else 30.0)
        self.stall_s: float | None = raw.get("stall_s")
        self.memory_limit: int | None = raw.get("memory_limit")
        self.checkpoint_dir: str | None = raw.get("checkpoint_dir")
        self.checkpoint_writer = str(raw.get("checkpoint_writer") or "")
        self.artifacts_dir: str | None = raw.get("artifacts_dir")
        self.checkpoint_store: str | None = raw.get("checkpoint_store")
        self.resume_from: str | None = raw.get("resume_from")
        self.resume_url: str | None = None  # what the folder to resume from is a copy of
        self.hidden_devices: list[str] = list(raw.get("hidden_devices") or [])
        self.must_hide = bool(raw.get("must_hide"))  # else the ranks start also where nothing can be hidden
        self.mpi: dict[str, Any] | None = raw.get("mpi")
        self.echo: bool | str = raw.get("echo") or False  # "pod": in the form of a pod's log
        self.line_port = int(wait.get("port") or 0)
        self.line_token_file = str(wait.get("token_file") or "")
        self.line_lost_s = float(wait.get("lost_s") or 30.0)
        self.deciding: list[str] = list(wait.get("deciding") or [])
        self.ends_together = bool(wait.get("together"))  # after a failure no node ends before all have
        self.run_timeout_s: float | None = wait.get("run_timeout_s")
        self.termination: str | None = raw.get("termination")
        self.log_wait_s = float(raw.get("log_wait_s") or 0.0)  # how long an ended node waits for readers of its logs
        self.stdin = bool(raw.get("stdin"))  # the submitter passes its own on
        self.keep: str | None = raw.get("keep")
        self.keep_checkpoints: Any = raw.get("keep_checkpoints") or 0  # a number or a mapping: storage.retention
        self.artifacts: list[str] = list(raw.get("artifacts") or [])
        self.restart: dict[str, Any] | None = raw.get(
            "restart"
        )  # the rule of retries, where node 0 may restart in place
        self.again: dict[str, Any] | None = raw.get("again")  # of a restart in place: what the attempts before left
        self.mark = "@%d" % self.attempt if self.again is not None else ""  # of its logs: attempts share the folder
        self.is_spare = self.node in self.spares  # it has no ranks, and waits for a place
        self.stays: str | None = raw.get("stays")  # after a failure of the ranks: the FIFO that wakes the engine then


def shared_path(plan: NodePlan, path: str | None) -> str | None:
    """A path to send to other nodes: relative if it is inside this node's folder."""
    return os.path.relpath(path, plan.directory) if path and path.startswith(plan.directory + "/") else path


def own_path(plan: NodePlan, path: str | None) -> str | None:
    """Resolve a path that another node sent."""
    return path and os.path.join(plan.directory, path)


def resumed_from(plan: NodePlan) -> str | None:
    """The checkpoint to resume from as the user knows it: its URL if the folder is a copy from an object store."""
    path = plan.resume_from
    for folder, url in ((plan.checkpoint_dir, plan.checkpoint_store), (plan.directory + "/resume", plan.resume_url)):
        if path and folder and url and path.startswith(folder):
            if path == folder:
                return url
            name = os.path.basename(path)
            return url if url.rstrip("/").endswith("/" + name) else "%s/%s" % (url.rstrip("/"), name)
    return path


def read_plan(path: str) -> NodePlan:
    """Read plan.json. Raises PlanError."""
    try:
        return NodePlan(read_json(path))
    except OSError as error:
        raise PlanError("%s: %s" % (path, error.strerror)) from None
    except KeyError as error:
        raise PlanError("%s: key %s is missing" % (path, error)) from None
    except (ValueError, TypeError, AttributeError) as error:
        raise PlanError("%s: %s" % (path, error)) from None


def end_request(plan: NodePlan, name: str, otherwise: str) -> tuple[str, float]:
    """Reason and grace from the request file of this name; `otherwise`: the reason if there is none."""
    try:
        request = read_json(os.path.join(plan.directory, name))
        grace_s = request.get("grace_s")
        return str(request.get("reason") or otherwise), plan.grace_s if grace_s is None else float(grace_s)
    except (OSError, ValueError, AttributeError, TypeError):
        return otherwise, plan.grace_s

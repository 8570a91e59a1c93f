"""The environment of the ranks: the launcher's own, the plan's, and what every rank is promised. Pure but for the
folder of the `longboat` package that `provide_package` writes.
"""

from __future__ import annotations

import os

from ..location import entry_point, own_file
from .jsonfiles import write_whole
from .plan import NodePlan, RankPlan

LIFELINE = "LONGBOAT_LIFELINE_FD"


def node_environment(plan: NodePlan, inherited: dict[str, str]) -> dict[str, str]:
    """The environment common to all processes of the node."""
    env = dict(inherited)
    env.pop(LIFELINE, None)
    for name in plan.unset:
        env.pop(name, None)
    env.update(plan.env)
    env.update(
        {
            "LONGBOAT_RUN_UID": plan.uid,
            "LONGBOAT_NODE": plan.node,
            "LONGBOAT_ATTEMPT": str(plan.attempt),
            "LONGBOAT_NODE_DIR": plan.directory,
            "LONGBOAT_LAUNCHER": entry_point(),
            "LONGBOAT_RESUME_FROM": plan.resume_from or "",
        }
    )
    for name, value in (
        ("LONGBOAT_CHECKPOINT_DIR", plan.checkpoint_dir),
        ("LONGBOAT_CHECKPOINT_WRITER", plan.checkpoint_writer),
        ("LONGBOAT_ARTIFACTS_DIR", plan.artifacts_dir),
        ("TMPDIR", plan.scratch),
    ):
        if value:
            env[name] = value
    env.setdefault("PYTHONFAULTHANDLER", "1")
    env.setdefault("PYTHONUNBUFFERED", "1")
    env["PATH"] = ":".join(plan.path_prepend + [env.get("PATH") or os.defpath] + plan.path_append)
    if plan.library_path:
        env["LD_LIBRARY_PATH"] = ":".join(plan.library_path + [each for each in (env.get("LD_LIBRARY_PATH"),) if each])
    env["PYTHONPATH"] = ":".join(part for part in (env.get("PYTHONPATH"), package_folder(plan)) if part)
    return env


def rank_environment(node: dict[str, str], rank: RankPlan) -> dict[str, str]:
    env = dict(node)
    env["LONGBOAT_RANK"] = str(rank.rank)
    env.update(rank.env)
    return env


def marks(plan: NodePlan) -> list[bytes]:
    """Variables that identify processes of this node and attempt."""
    return [
        os.fsencode("%s=%s" % pair)
        for pair in (
            ("LONGBOAT_RUN_UID", plan.uid),
            ("LONGBOAT_NODE", plan.node),
            ("LONGBOAT_ATTEMPT", plan.attempt),
        )
    ]


PACKAGE_PARTS = ("trainer.py", "trainer_rare.py", "rank_package.py")
"""Files of the launcher whose text makes the package of ranks, in this order."""


def package_folder(plan: NodePlan) -> str:
    return os.path.join(plan.directory, "python")


def provide_package(plan: NodePlan) -> None:
    """Write the package `longboat` for ranks: the trainer's functions in one file, rarer ones in files beside it."""
    folder = os.path.join(package_folder(plan), "longboat")
    os.makedirs(folder, exist_ok=True)
    source = b"\n\n\n".join(own_file(name).rstrip() for name in PACKAGE_PARTS) + b"\n"
    for name in ("sharding.py", "following.py"):
        write_whole(os.path.join(folder, name), own_file(name))
    write_whole(os.path.join(folder, "__init__.py"), source)

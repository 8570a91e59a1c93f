"""Longboat: from a training script on this machine to a GPU cluster. Names load when they are first used.

A trainer uses `step`, `checkpoint_dir`, `checkpoint`, `resume_from`, `should_stop`; a program that starts runs uses the
names of `longboat.sdk`.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from longboat.launcher.following import evaluated as evaluated
    from longboat.launcher.following import new_checkpoints as new_checkpoints
    from longboat.launcher.sharding import sharded_checkpoint as sharded_checkpoint
    from longboat.launcher.trainer import checkpoint as checkpoint
    from longboat.launcher.trainer import checkpoint_dir as checkpoint_dir
    from longboat.launcher.trainer import params as params
    from longboat.launcher.trainer import rank as rank
    from longboat.launcher.trainer import resume_from as resume_from
    from longboat.launcher.trainer import should_stop as should_stop
    from longboat.launcher.trainer import step as step
    from longboat.launcher.trainer import world_size as world_size
    from longboat.launcher.trainer_rare import batch_size as batch_size
    from longboat.launcher.trainer_rare import golden as golden
    from longboat.launcher.trainer_rare import should_save as should_save
    from longboat.sdk import *  # noqa: F403

__version__ = "0.1.0"

_TRAINER = ("checkpoint", "checkpoint_dir", "params", "rank", "resume_from", "should_stop", "step", "world_size")
_RARE = {
    "batch_size": "trainer_rare",
    "evaluated": "following",
    "golden": "trainer_rare",
    "new_checkpoints": "following",
    "sharded_checkpoint": "sharding",
    "should_save": "trainer_rare",
}


def __getattr__(name: str) -> "Any":
    if not name.startswith("_"):
        from importlib import import_module

        own = "trainer" if name in _TRAINER else _RARE.get(name)
        home = import_module(f"longboat.launcher.{own}" if own else "longboat.sdk")
        if own or name in home.__all__:
            value = getattr(home, name)
            globals()[name] = value
            return value
    raise AttributeError(f"module 'longboat' has no attribute {name!r}")


def __dir__() -> "list[str]":
    """All names, loaded or not; in a pod there is no `sdk`."""
    from importlib import import_module

    try:
        names = import_module("longboat.sdk").__all__
    except ImportError:
        names = []
    return sorted({"__version__", *_TRAINER, *_RARE, *names})

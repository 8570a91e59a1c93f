"""Sharded checkpoints: every rank writes its part into one folder, and the last to be written is the marker.

`longboat.sharded_checkpoint` in a trainer. Ranks see the package `longboat` with this file in it, a program outside of
a run that of the launcher. Standard library only, Python >= 3.8.
"""

from __future__ import annotations

import os
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType
    from typing import Any

    from . import trainer
elif __package__ == "longboat":  # of a rank: the package itself is `trainer`
    trainer = sys.modules[__package__]
else:
    from . import trainer

_DONE = ".done-"
_FAILED = ".failed"
_LOOK_S = 0.02  # all ranks stand still until the last part is there
_PATIENCE_S = 3600.0
"""A rank with the largest part of a checkpoint of many terabytes, on a slow storage. One that has died ends the whole
gang long before."""
_rounds: dict[int, int] = {}  # step -> how often this process has saved it


class sharded_checkpoint:
    """`with longboat.sharded_checkpoint(step) as folder:` in every rank - each writes its own files into the folder,
    which is the same for all. When the blocks of all have ended well it is completed and becomes `step-N`; if one of
    them raises there is no checkpoint. Returns when that is decided.

    `ranks`: how many take part; by default all of the world. The folder must be one that all nodes see.
    """

    def __init__(self, number: int, *, ranks: int | None = None, **metrics: Any) -> None:
        self._number = int(number)
        self._ranks = trainer.world_size() if ranks is None else int(ranks)
        self._metrics = metrics
        self._folder = ""
        self._is_shared = False

    def __enter__(self) -> str:
        parent = trainer.checkpoint_dir()
        _rounds[self._number] = _rounds.get(self._number, 0) + 1
        # torchrun may start ranks again within an attempt: what the dead ones left is of another round.
        again = os.environ.get("TORCHELASTIC_RESTART_COUNT") or "0"
        name = ".step-%d.a%d.%s.shards-%d.tmp" % (self._number, trainer._attempt(), again, _rounds[self._number])
        try:
            trainer._check_fence(parent, self._number)
            _check_shared(parent)
            self._folder = os.path.join(parent, name)
            os.makedirs(self._folder, exist_ok=True)
            self._is_shared = True
        except OSError as error:
            trainer._warn("no checkpoint of step %d: %s" % (self._number, error.strerror or error))
            import tempfile

            self._folder = tempfile.mkdtemp(prefix="longboat-")
        return self._folder

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if not self._is_shared:
            trainer._remove(self._folder)
            return
        try:
            self._finish_part(kind is None)
            if trainer._writes():
                self._complete()
            else:
                self._await_end(is_well=kind is None)
        except OSError as problem:
            trainer._warn("no checkpoint of step %d: %s" % (self._number, problem.strerror or problem))
            if trainer._writes():
                trainer._remove(self._folder)
        trainer._files.clear()

    def _finish_part(self, is_well: bool) -> None:
        """Flush what there is, then say that this rank's part is done, by an empty file: a full disk has room for it.

        Another rank may be about to remove it all.
        """
        place = os.path.join(self._folder, _DONE + str(trainer.rank()))
        try:
            for parent, _, files in os.walk(self._folder) if is_well else ():
                for file in files:
                    try:
                        trainer._sync(os.path.join(parent, file))
                    except FileNotFoundError:
                        continue  # a temporary name of another rank's
        except OSError:
            open(place + _FAILED, "w").close()
            raise
        open(place if is_well else place + _FAILED, "w").close()

    def _complete(self) -> None:
        """Of the rank that writes: wait for all parts, then complete the checkpoint, or remove it."""
        until = time.monotonic() + _PATIENCE_S
        parts: list[str] = []
        while len(parts) < self._ranks:
            if time.monotonic() > until:
                raise OSError(0, "after %d s only %d of %d ranks had written" % (_PATIENCE_S, len(parts), self._ranks))
            time.sleep(_LOOK_S if parts else 0)
            parts = sorted(name for name in os.listdir(self._folder) if name.startswith(_DONE))
        failed = [name[len(_DONE) : -len(_FAILED)] for name in parts if name.endswith(_FAILED)]
        if failed:
            raise OSError(0, "rank %s did not write its part" % failed[0])
        for name in parts:
            os.unlink(os.path.join(self._folder, name))
        final = os.path.join(os.path.dirname(self._folder), "step-%d" % self._number)
        trainer._complete(self._folder, final, self._number, self._metrics)
        trainer._remove(self._folder)

    def _await_end(self, is_well: bool) -> None:
        """Of the others: until the folder has become the checkpoint, or is gone. Whoever failed does not wait."""
        until = time.monotonic() + _PATIENCE_S
        while is_well and os.path.isdir(self._folder) and time.monotonic() < until:
            time.sleep(_LOOK_S)


def _check_shared(parent: str) -> None:
    """Raise OSError where each node has a folder of its own: no node would ever see all parts."""
    node, nodes = os.environ.get("LONGBOAT_NODE_DIR", ""), os.environ.get("LONGBOAT_NODES", "1")
    if node and nodes != "1" and os.path.abspath(parent).startswith(node.rstrip("/") + "/"):
        raise OSError(
            0, "%s is a folder of this node alone, and all nodes write: let `checkpoints.to` be shared" % parent
        )

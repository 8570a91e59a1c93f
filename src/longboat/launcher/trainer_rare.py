"""Functions of `import longboat` that few trainers need: `should_save` (a checkpoint soon, since a node is about to
go), `batch_size` (the share of a rank in a batch), `golden` (what a server of a checkpoint must answer).

In a rank the text of this file follows that of `trainer` in one file (`node.environment.provide_package`), so it has no
`from __future__`; where Longboat is installed it is a module. Standard library only, Python >= 3.8.
"""

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

if __name__ != "longboat":
    from longboat.launcher.trainer import _files, _warn, rank, world_size

_saved_for = 0  # the request for a checkpoint that `should_save` has told last


def should_save() -> bool:
    """True once for each time that the run is asked for a checkpoint soon, because a node of it is about to go."""
    global _saved_for
    folder = os.environ.get("LONGBOAT_NODE_DIR")
    try:
        asked = os.stat(os.path.join(folder, "save")).st_mtime_ns if folder else 0
    except OSError:
        asked = 0
    is_new = asked not in (0, _saved_for)
    _saved_for = asked or _saved_for
    return is_new


def batch_size(size: int) -> int:
    """How many samples this rank takes of a batch.

    In a job with `batch: global`, `size` is that of all ranks together: each rank has the same share, and the first
    ranks one more where it does not divide, so that the shares make exactly `size`. Else it is each rank's own.
    """
    if os.environ.get("LONGBOAT_BATCH") != "global":
        return size
    share, rest = divmod(size, world_size())
    if not share:
        raise ValueError("a batch of %d for %d ranks" % (size, world_size()))
    return share + (rank() < rest)


def golden(inputs: "Any", outputs: "Any", path: str = "/predict", tolerance: float = 1e-4) -> None:
    """Save golden cases: what a server with this checkpoint answers to these requests (`longboat serve` asks them).

    They go with the checkpoint that is completed next. Each input is the JSON body of one POST to `path`, each output
    its JSON answer; numbers may differ by `tolerance`, relative to those above 1.
    """
    try:
        import json

        cases = [{"input": given, "output": wanted} for given, wanted in zip(inputs, outputs)]
        if len(cases) != len(inputs) or len(cases) != len(outputs):
            raise ValueError("%d inputs and %d outputs" % (len(inputs), len(outputs)))
        fields = {"path": path, "tolerance": float(tolerance), "cases": cases}
        _files["golden.json"] = json.dumps(fields, default=lambda value: value.tolist())  # of arrays and tensors
    except Exception as error:
        _warn("golden cases not saved: %s" % error)

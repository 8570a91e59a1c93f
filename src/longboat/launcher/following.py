"""Checkpoints as an evaluator sees them: each as it is completed, and what it is worth.

`longboat.new_checkpoints` and `longboat.evaluated` in a trainer; where this file lies, see `sharding`. Standard library
only, Python >= 3.8.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from . import trainer
elif __package__ == "longboat":  # of a rank: the package itself is `trainer`
    trainer = sys.modules[__package__]
else:
    from . import trainer

_LOOK_S = 0.5  # a checkpoint takes longer to write, and a look is one `stat`
_MARKER_MAX = 1 << 16
"""Bytes of a marker that make its digest, as in `storage.fences`."""
_followed: dict[int, str] = {}  # of each step that came last, the digest of its marker
_said: list[dict[str, Any]] = []  # what the launcher was told last


def new_checkpoints(*, newest_only: bool = False) -> Iterator[tuple[int, str]]:
    """`for step, folder in longboat.new_checkpoints():` - the run's complete checkpoints, in the order of their steps,
    as they are written. Ends when the run is asked to stop, after a last look. `newest_only`: pass over those for which
    there is a newer one already.

    An evaluator that is started again goes on after the last one that it has told about (`evaluated`).
    """
    latest = -1
    while True:
        is_last = trainer.should_stop()
        _say(latest, newest_only)
        is_last = is_last and _is_all_here()
        parent = trainer.checkpoint_dir()
        fresh = [each for each in _complete(parent) if each[0] > latest and not _is_evaluated(parent, each[0], each[2])]
        for step, path, digest in fresh[-1:] if newest_only else fresh:
            latest = step
            _followed[step] = digest
            _say(latest, newest_only)
            if os.path.isdir(path):  # it may have been removed while an earlier one was evaluated
                yield step, path
        if is_last:
            return
        if not fresh:
            time.sleep(_LOOK_S)


def _say(latest: int, newest_only: bool) -> None:
    """Tell the launcher that this rank follows, and how far it is: one in another pod than the writer fetches what
    comes next from the object store. Before it is there, a short training's end would end this rank too."""
    folder, rank = os.environ.get("LONGBOAT_NODE_DIR"), os.environ.get("LONGBOAT_RANK", "")
    wish = {"at": latest, "newest_only": newest_only}
    if not folder or not rank.isdecimal() or _said == [wish]:
        return
    place = os.path.join(folder, "follows-" + rank)
    try:
        with open(place + ".tmp", "w") as file:
            json.dump(wish, file)
        os.replace(place + ".tmp", place)
        _said[:] = [wish]
    except OSError as error:
        trainer._warn("the launcher was not told of checkpoints to follow: %s" % error.strerror)


def _is_all_here() -> bool:
    """Whether all that the training wrote can be seen here, as far as the launcher knows."""
    place = os.path.join(os.environ.get("LONGBOAT_NODE_DIR") or "", "following.json")
    return not os.path.exists(place) or bool(_fields(place)[0].get("is_all"))


def evaluated(number: int, **metrics: Any) -> None:
    """Report what a checkpoint is worth: shown as metrics of the run, and of the checkpoint; `keep` knows the best by
    them."""
    trainer.step(number, **metrics)
    numbers = {name: trainer._number_of(value) for name, value in metrics.items()}
    parent = trainer.checkpoint_dir()
    place = os.path.join(parent, ".metrics-step-%d" % number)
    now = _digest(_fields(os.path.join(parent, "step-%d" % number, ".complete"), _MARKER_MAX)[1])
    judged = _followed.pop(number, now)
    if judged is None or judged != now:
        return  # it was removed, or a later attempt has written another one
    known = {name: value for name, value in numbers.items() if value is not None}
    try:
        with open(place + ".tmp", "w") as file:
            json.dump({"marker": judged, "metrics": known}, file)
        os.replace(place + ".tmp", place)
    except OSError as error:
        trainer._warn("metrics of step %d are not kept: %s" % (number, error.strerror))


def _is_evaluated(parent: str, step: int, digest: str) -> bool:
    """Whether this very checkpoint was; a retry may have written another one of the same step."""
    return _fields(os.path.join(parent, ".metrics-step-%d" % step))[0].get("marker") == digest


def _digest(marker: bytes | None) -> str | None:
    return None if marker is None else hashlib.sha256(marker).hexdigest()[:16]


def _complete(parent: str) -> list[tuple[int, str, str]]:
    """Step, folder and digest of complete checkpoints that count: not those that an attempt wrote after a newer one
    had replaced it."""
    attempts = [int(name[9:]) for name in _names(parent) if name.startswith(".attempt-") and name[9:].isdecimal()]
    newest = max(attempts or [0])
    accepted = _fields(os.path.join(parent, ".attempt-%d" % newest))[0].get("accepted") or []
    complete = []
    for name in _names(parent):
        if not name.startswith("step-") or not name[5:].isdecimal():
            continue
        fields, data = _fields(os.path.join(parent, name, ".complete"), _MARKER_MAX)
        by, digest = fields.get("attempt"), _digest(data)
        key = "%s:%s" % (name, digest)
        if digest is not None and (not isinstance(by, int) or by >= newest or key in accepted):
            complete.append((int(name[5:]), os.path.join(parent, name), digest))
    return sorted(complete)


def _fields(path: str, most: int = 1 << 24) -> tuple[dict[str, Any], bytes | None]:
    data = None
    try:
        with open(path, "rb") as file:
            data = file.read(most)
        fields = json.loads(data.decode("utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}, data
    return fields if isinstance(fields, dict) else {}, data


def _names(parent: str) -> list[str]:
    try:
        return os.listdir(parent)
    except OSError:
        return []

"""Checkpoints of an object store for a rank that follows them in another pod than the one that writes them.

A rank that calls `longboat.new_checkpoints` says so in a file `follows-RANK` of the node's folder; what it waits for is
fetched into the node's checkpoint folder, and what it tells of a checkpoint is sent back. `following.json` says whether
all that the training has written is there.
"""

from __future__ import annotations

import os

from ..node.jsonfiles import read_json, write_json
from ..ranks.state import FOLLOWS
from ..vendored import load
from .checkpoint_upload import LAST_TRIES, LEAST_S, LONGEST_PAUSE_S, LOOK_S, StoreThread

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..ranks.state import LauncherState

FOLLOWING = "following.json"
"""In the node's folder, as in `following`."""
END_LOOK_S = 0.5  # at the end of the node, which waits for the last checkpoint


class Follower(StoreThread):
    """Fetches checkpoints for ranks of this node that follow them."""

    def __init__(self, state: LauncherState) -> None:
        StoreThread.__init__(self, state)
        # On a machine of one's own all ranks see the folder of the one that writes: nothing is to be fetched.
        self._is_apart = self._folder.startswith(state.plan.directory + "/")
        if self._is_apart:
            write_json(state.path(FOLLOWING), {"is_all": False})

    def _work(self) -> None:
        pause_s, tries = LOOK_S, LAST_TRIES
        while True:
            self._asked.clear()
            is_last = self._is_last
            is_fine = self._look(is_last)
            tries -= is_last
            if is_last and (is_fine or tries <= 0):
                return
            pause_s = LOOK_S if is_fine else min(pause_s * 2, LONGEST_PAUSE_S)
            self._asked.wait(END_LOOK_S if is_last or self._state.ending is not None else pause_s)

    def _look(self, is_last: bool) -> bool:
        """Send what was told, fetch what is wanted next. Whether it succeeded, or nobody follows."""
        wish = self._wish()
        if wish is None:
            return True
        try:
            self._exchange(wish, is_last)
            self._said = ""
            return True
        except Exception as error:  # whatever it is: it is tried again
            self._tell("checkpoints are not fetched", error)
            if self._is_apart and self._is_short():
                write_json(self._state.path(FOLLOWING), {"is_all": True})
            return False

    def _exchange(self, wish: tuple[int, bool], is_last: bool) -> None:
        state, plan = self._state, self._state.plan
        if self._mirror is None:
            self._mirror = load("storage.checkpoint_mirror").Mirror(plan.checkpoint_store, self._env)
        evaluations = load("storage.evaluations")
        evaluations.send_evaluations(self._mirror, self._path(), self._evaluated)
        if is_last or not self._is_apart:
            return
        after, newest_only = wish
        evaluations.drop_before(self._path(), after, plan.resume_from)
        # Read before the store is asked: what the training wrote before it ended is then in the answer, or awaited.
        is_ending, awaited = state.ending is not None, state.awaited_step
        followed = evaluations.fetch_next(self._mirror, self._path(), after=after, newest_only=newest_only)
        is_all = followed.is_all and (awaited is None or followed.newest >= awaited)
        if is_ending and (is_all or self._is_short()):
            write_json(state.path(FOLLOWING), {"is_all": True})
        elif followed.is_new:
            self._asked.set()  # the next one at once, if there is room for it

    def _is_short(self) -> bool:
        """Whether there is no time left to wait: the ranks are to end soon, or not because the training succeeded."""
        ending = self._state.ending
        return ending is not None and (ending.by != "success" or self._state.grace_left_s() < LEAST_S)

    def _wish(self) -> tuple[int, bool] | None:
        """The step after which checkpoints are wanted, and whether only the newest is; None: nobody follows."""
        wishes: list[dict[str, Any]] = []
        for name in os.listdir(self._state.plan.directory):
            if name.startswith(FOLLOWS) and name[len(FOLLOWS) :].isdecimal():
                try:
                    wishes.append(read_json(self._state.path(name)))
                except (OSError, ValueError):
                    continue
        if not wishes:
            return None
        return min(int(wish["at"]) for wish in wishes), all(wish["newest_only"] for wish in wishes)

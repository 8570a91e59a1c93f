"""Checkpoints that lie in an object store: sent there while the node runs and at its end, fetched before it starts.

The ranks see a plain folder. What a checkpoint in a store is, is known to `storage.checkpoint_mirror`, which travels
with the launcher. A thread sends, for a store may take its time; nothing in here changes how the node ends.
"""

from __future__ import annotations

import os
import threading
import time

from ..node.jsonfiles import write_json
from ..ranks.state import LauncherState, NodeFailure
from ..vendored import load
from . import checkpoints
from .fetch import run_import

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

LOOK_S = 2.0  # a look is one listing of a folder, and a checkpoint takes minutes
LONGEST_PAUSE_S = 60.0  # of a store that is away: more would lose a checkpoint that could be sent
LAST_TRIES = 2
"""At the end of the node, of the last checkpoint, where the store refuses it."""
AWAY_S = 1800.0
"""For so long a store that is away is waited for, before the ranks start and where a checkpoint would go with its pod:
longer than a restart or a failover takes, shorter than anybody wants to pay for idle GPUs."""
TURN_S = 0.1  # the loop goes on with signals and peers while the last checkpoint is sent
LEAST_S = 3.0
"""Who is being stopped has the rest of its grace, and so long at least."""
EXIT_SETUP = 209
RESUME = "resume"


def is_url(place: str | None) -> bool:
    return place is not None and "://" in place


def sends(state: LauncherState) -> bool:
    """Whether this node uploads: only the one whose first rank writes checkpoints, also where nodes share a folder."""
    plan = state.plan
    if not plan.checkpoint_store or not plan.checkpoint_dir:
        return False
    if plan.checkpoint_writer:
        return plan.node == plan.checkpoint_writer
    return plan.index == 0 if plan.checkpoint_dir.startswith(plan.directory + "/") else plan.node_rank == 0


def watch_checkpoints(state: LauncherState, folder: str) -> None:
    """Start pruning old checkpoints on node 0, or on each node with its own folder; the node that uploads to an object
    store does both.
    """
    plan = state.plan
    if sends(state):
        state.sender = Sender(state)
        state.sender.start()
    elif plan.checkpoint_store:
        from .checkpoint_follow import Follower

        state.sender = Follower(state)
        state.sender.start()
    elif plan.wait_kind == "line" and (plan.node_rank == 0 or folder.startswith(plan.directory + "/")):
        checkpoints.watch(folder, plan.keep_checkpoints, plan.attempt)


class StoreThread:
    """A thread that talks to the object store of the run's checkpoints while the node runs, and at its end."""

    def __init__(self, state: LauncherState) -> None:
        self._state = state
        self._folder = str(state.plan.checkpoint_dir)
        self._env = dict(state.env)
        self._mirror: Any = None
        self._evaluated: dict[str, bytes] = {}  # what the store has of an evaluator's word
        self._said = ""
        # Of a pod's launcher all is in the pod's log; on a machine of one's own nobody reads what it says.
        self._log = None if state.plan.echo else state.setup_stream()
        self._is_last = False
        self._is_away = False  # the store, at the last look
        self._until = float("inf")  # how long it is waited for at the end
        self._asked = threading.Event()
        self._ended = threading.Event()

    def start(self) -> None:
        threading.Thread(target=self._run, daemon=True).start()

    def newest_step(self) -> int | None:
        """The step of the newest complete checkpoint that this node wrote."""
        return None

    def hurry(self) -> None:
        """Upload complete checkpoints and then end the thread: the ranks have ended."""
        if not self._is_last:
            # On a machine of one's own the folder stays.
            is_copy = self._folder.startswith(self._state.plan.directory + "/")
            self._until = time.monotonic() + AWAY_S if is_copy else 0.0
        self._is_last = True
        self._asked.set()

    def finish(self) -> None:
        """Wait for the thread; when the node is stopped, no longer than the rest of the grace."""
        self.hurry()
        ending = self._state.ending
        is_short = ending is not None and ending.by in ("stop", "evicted", "timeout", "lost")
        limit_s = max(LEAST_S, self._state.grace_left_s() + LEAST_S) if is_short else float("inf")
        until, loop = time.monotonic() + limit_s, self._state.loop
        while not self._ended.is_set() and time.monotonic() < until:
            loop.after("sending", TURN_S, lambda: None)
            loop.turn()
        loop.cancel("sending")
        if not self._ended.is_set():
            self._say("the newest checkpoint could not be sent to %s in time" % self._state.plan.checkpoint_store)

    def _run(self) -> None:
        """The thread's function; `finish` returns however it ends."""
        try:
            self._work()
        except BaseException as error:
            self._tell("checkpoints are not sent or fetched any more", error)
            raise
        finally:
            self._ended.set()

    def _work(self) -> None:
        raise NotImplementedError

    def _path(self, *names: str) -> Any:
        from pathlib import Path

        return Path(self._folder, *names)

    def _tell(self, subject: str, error: BaseException) -> None:
        message = getattr(error, "message", None) or "%s: %s" % (type(error).__name__, error)
        hint = getattr(error, "hint", None)
        text = "%s: %s%s" % (subject, message, "; %s" % hint if hint else "")
        if text != self._said:
            self._said = text
            self._say(text)

    def _say(self, text: str) -> None:
        self._state.say(text)
        if self._log is not None:
            self._log.add_line("longboat: " + text)


class Sender(StoreThread):
    """Uploads the newest complete checkpoint (all, where all are kept), and prunes store and folder."""

    def __init__(self, state: LauncherState) -> None:
        StoreThread.__init__(self, state)
        self._sent: dict[str, Any] = {}  # what the store has: name and identity
        self._noted = -1  # the newest step of it

    def newest_step(self) -> int | None:
        complete = load("storage.checkpoints").complete_steps(self._path())
        return int(complete[-1][0]) if complete else None

    def _work(self) -> None:
        pause_s, tries = LOOK_S, LAST_TRIES
        while True:
            self._asked.clear()
            is_last = self._is_last
            is_fine, is_left = self._look()
            if is_fine and is_left:
                continue
            tries -= is_last
            is_waited_for = self._is_away and time.monotonic() < self._until
            if is_last and (is_fine or (tries <= 0 and not is_waited_for)):
                break
            pause_s = LOOK_S if is_fine else min(pause_s * 2, LONGEST_PAUSE_S)
            self._asked.wait(LOOK_S if is_last else pause_s)

    def _look(self) -> tuple[bool, bool]:
        """Upload one missing checkpoint and prune. Returns whether it succeeded and whether more are missing."""
        is_fine = is_left = False
        try:
            self._send_next()
            is_fine, is_left = True, bool(self._lacking())
            self._said = ""
        except Exception as error:  # whatever it is: it is tried again
            self._is_away = type(error).__name__ == "StoreUnavailable"
            if type(error).__name__ != "Gone":
                self._tell("the newest checkpoint was not sent", error)
        # Here and nowhere else, so that no checkpoint goes while it is being sent.
        plan = self._state.plan
        is_copy = self._folder.startswith(plan.directory + "/")
        # A pod's disk is no place for all of them: where all are kept, it has the newest, and what is not sent yet.
        keeps_one = is_copy and not checkpoints.rule_of(plan.keep_checkpoints).last and is_fine and not is_left
        try:
            checkpoints.prune(self._folder, 1 if keeps_one else plan.keep_checkpoints, plan.attempt)
        except Exception as error:  # what stays is removed another time
            self._tell("old checkpoints were not removed here", error)
        return is_fine, is_left

    def _send_next(self) -> None:
        if self._mirror is None:
            plan = self._state.plan
            mirror = load("storage.checkpoint_mirror").Mirror(plan.checkpoint_store, self._env, attempt=plan.attempt)
            there = mirror.complete()
            self._mirror = mirror
            self._sent = {name: self._identity(name) for _, name in there}
            for _, name in there[-1:]:
                self._note(name)
        load("storage.evaluations").send_evaluations(self._mirror, self._path(), self._evaluated)
        for name in self._lacking()[:1]:
            identity = self._identity(name)
            self._mirror.send(self._path(name))
            self._sent[name] = identity
            self._note(name)
            self._prune()

    def _prune(self) -> None:
        try:
            self._mirror.prune(checkpoints.rule_of(self._state.plan.keep_checkpoints))
        except Exception as error:  # what stays is removed another time
            self._tell("old checkpoints were not removed", error)

    def _lacking(self) -> list[str]:
        """Names of checkpoints to upload, newest first; older ones only where more than the newest ones are kept."""
        rule = checkpoints.rule_of(self._state.plan.keep_checkpoints)
        complete = [path.name for path in load("storage.checkpoints").kept_complete(self._path(), rule)]
        wanted = complete[-1:] if rule.last and not (rule.best or rule.every_s) else complete[::-1]
        return [name for name in wanted if name not in self._sent or self._sent[name] != self._identity(name)]

    def _identity(self, name: str) -> Any:
        return load("storage.checkpoint_mirror").identity(self._path(name))

    def _note(self, name: str) -> None:
        """Record the newest uploaded checkpoint."""
        step = int(name.partition("-")[2])
        if step >= self._noted:
            self._noted = step
            write_json(self._state.path(checkpoints.MIRRORED), {"checkpoint": self._mirror.url_of(name)})


# before the ranks, in a pod


def fetch_before(state: LauncherState) -> bool:
    """Download checkpoints that this run may resume from. False: it failed, or the node must end."""
    plan = state.plan
    items: list[dict[str, Any]] = []
    if plan.checkpoint_store:
        item: dict[str, Any] = {"checkpoints": plan.checkpoint_store, "folder": plan.checkpoint_dir}
        if plan.node_rank == 0:  # it fences off the attempts before this one, for all
            item.update(attempt=plan.attempt, uid=plan.uid)
        items.append(item)
    if is_url(plan.resume_from):
        url, plan.resume_from = plan.resume_from, state.path(RESUME)
        plan.resume_url = url
        items.append({"checkpoints": url, "folder": plan.resume_from, "unless": plan.checkpoint_dir})
    return not items or _fetch(state, [dict(item, again=plan.attempt > 0) for item in items])


def fetch_after(state: LauncherState) -> None:
    """Download the checkpoint that node 0 chose, if this node's newest is another."""
    plan, wanted = state.plan, state.plan.resume_from
    if not wanted or not wanted.startswith(plan.directory + "/") or os.path.exists(os.path.join(wanted, ".complete")):
        return
    folder, name = os.path.split(wanted)
    url = plan.resume_url if folder == state.path(RESUME) else plan.checkpoint_store
    if url is None:
        state.failure = NodeFailure("setup", EXIT_SETUP, "%s: node 0 resumes from it, and it is not here" % wanted)
        return
    url = url if url.rstrip("/").endswith("/" + name) else "%s/%s" % (url.rstrip("/"), name)
    _fetch(state, [{"checkpoints": url, "folder": folder, "again": plan.attempt > 0}])
    if not state.is_over and not os.path.exists(os.path.join(wanted, ".complete")):
        state.failure = NodeFailure("setup", EXIT_SETUP, "%s: node 0 resumes from it, and it is gone" % url)


def _fetch(state: LauncherState, items: list[dict[str, Any]]) -> bool:
    message = run_import(state, items)
    if message is not None and not state.is_over:
        state.failure = NodeFailure("setup", EXIT_SETUP, "checkpoints cannot be fetched: " + message)
    return not state.is_over


def patiently(act: Callable[[], Any], limit_s: float) -> Any:
    """Do it; a store that is away is waited for, or the run would use up its retries for nothing."""
    from sys import stderr

    until, is_told = time.monotonic() + limit_s, False
    while True:
        try:
            return act()
        except Exception as error:
            if type(error).__name__ != "StoreUnavailable" or time.monotonic() >= until:
                raise
            if not is_told:
                stderr.write("longboat: waits for the store: %s\n" % error)
            is_told = True
            time.sleep(LOOK_S)


def fetch_item(raw: dict[str, Any], env: dict[str, str]) -> None:
    """Download the checkpoint of a URL; runs in a process of its own."""
    from pathlib import Path
    from sys import stderr

    if checkpoints.newest(raw.get("unless")) is not None:
        return
    begun = time.monotonic()
    # In the first attempt a store that does not answer is more likely a wrong address.
    limit_s = AWAY_S if raw.get("again") else 0.0
    if raw.get("attempt"):
        mirror = load("storage.checkpoint_mirror").Mirror(raw["checkpoints"], env)
        try:
            patiently(lambda: mirror.begin_attempt(int(raw["attempt"]), str(raw["uid"])), limit_s)
        except Exception as error:
            if type(error).__name__ == "Fenced":
                raise
            stderr.write("longboat: attempts before this one are not fenced off: %s\n" % error)  # read-only, perhaps
    before = checkpoints.newest(raw["folder"])
    fetch = load("storage.checkpoint_mirror").fetch_checkpoint
    checkpoint = patiently(lambda: fetch(raw["checkpoints"], Path(raw["folder"]), env), limit_s)
    if checkpoint is not None and str(checkpoint) != before:
        took_s = time.monotonic() - begun
        stderr.write("longboat: fetched %s of %s in %.1f s\n" % (checkpoint.name, raw["checkpoints"], took_s))

"""The barrier before the ranks: hidden devices, the setup command, the peers. All end early when the node is told to
end."""

from __future__ import annotations

import os
import time

from ..node import processes
from ..node.loop import ChildEnd
from ..ranks import failure_cause
from ..ranks.state import LauncherState, NodeFailure
from ..ranks.streams import RankStream

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable

    from .membership import Membership

LOCK_RETRY_S = 0.1  # the attempt before is ending; nobody tells when it has
FILES_RETRY_S = 0.05  # files of one machine, which come within a tenth of a second
DNS_RETRY_S = 0.5  # names appear a second after the pod; a cluster's DNS serves all nodes at once
REPORT_S = 10.0
"""How often it is told whom a node waits for."""
EXIT_SETUP = EXIT_PEERS = 209


def prepare(
    state: LauncherState, before: Callable[[LauncherState], None] | None = None, membership: Membership | None = None
) -> None:
    """Hide devices, run setup, report this node as ready, wait for the others. A failure is in `state.failure`."""
    if state.plan.hidden_devices and not _hide_devices(state):
        return
    if before is not None:
        before(state)
    if state.plan.setup and not state.is_over and state.plan.again is None:
        _run_setup(state, state.plan.setup)
    if state.plan.again is not None and state.plan.node_rank == 0:
        _back_off(state, float(state.plan.again.get("not_before") or 0.0))
    if state.is_over:
        return
    state.write("ready.json", {"address": state.plan.address, "time": time.time()})
    if membership is not None:
        state.phase = "waiting"
        _wait_for_go(state, membership)
    elif state.plan.wait_kind != "none":
        state.phase = "waiting"
        _wait_for_peers(state)


def _back_off(state: LauncherState, until: float) -> None:
    """Wait with a restart in place for as long as the job's retries say: node 0 does, and the others for node 0."""
    state.phase = "waiting"
    while not state.is_over and time.monotonic() < until:
        state.loop.after("backoff", max(0.0, until - time.monotonic()), lambda: None)
        state.loop.turn()
    state.loop.cancel("backoff")


def _hide_devices(state: LauncherState) -> bool:
    """Hide GPUs of other runs before any user process starts. False when the node must end."""
    from ..node.device_isolation import hide

    try:
        hide(state.plan.hidden_devices)
    except OSError as error:
        text = "device files of GPUs that are not this run's cannot be hidden: %s" % (error.strerror or error)
        state.say(text)
        if state.plan.must_hide:
            state.failure = NodeFailure("setup", EXIT_SETUP, text)
            return False
    return True


def _run_setup(state: LauncherState, command: str) -> None:
    lock = _lock(state)
    if not state.is_over:
        stream = state.setup_stream()
        ends: list[ChildEnd] = []
        try:
            state.start(command, state.env, (os.devnull, stream.pipe, stream.pipe), ends.append)
        except processes.StartError as error:
            state.failure = NodeFailure("setup", error.exit_code, str(error))
        while state.running:
            state.loop.turn()
        state.catch_up(stream)
        if ends and ends[0].code != 0 and not state.is_over:
            _setup_failed(state, ends[0], stream)
    if lock is not None:
        os.close(lock)


def _setup_failed(state: LauncherState, end: ChildEnd, stream: RankStream) -> None:
    lines = failure_cause.lines_of(stream.tail(failure_cause.TAIL_BYTES))
    last = failure_cause.last_words(lines)
    how = "killed by " + failure_cause.signal_name(end.signal) if end.signal else "exit code %d" % end.code
    message = "setup failed: " + how + (": " + last[:300] if last else "")
    state.failure = NodeFailure("setup", end.code, message)
    state.failure.tail = lines[-failure_cause.TAIL_LINES :]


def _lock(state: LauncherState) -> int | None:
    """Hold the setup lock without blocking the loop: nodes on one machine take turns."""
    if not state.plan.setup_lock:
        return None
    import fcntl

    descriptor = os.open(state.plan.setup_lock, os.O_RDWR | os.O_CREAT, 0o644)
    while not state.is_over:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            state.loop.after("lock", LOCK_RETRY_S, lambda: None)
            state.loop.turn()
    return descriptor


def _wait_for_go(state: LauncherState, membership: Membership) -> None:
    """Wait for node 0's message that all nodes are ready."""
    membership.ready()
    membership.look()
    begun = time.monotonic()
    report = begun + REPORT_S
    while not state.is_over and not membership.is_going and membership.later is None:
        before, state.missing = state.missing, membership.missing()
        if state.missing != before:
            state.on_change()
        if membership.waited_in_vain():
            text = "%s could not be reached within %g s" % (_listed(state.missing), state.plan.wait_timeout_s)
            text += _because(membership)
            state.failure = NodeFailure("peers", EXIT_PEERS, text)
            state.say(text)
            return
        now = time.monotonic()
        if now >= report and not state.plan.is_spare:
            report += REPORT_S
            whom = _listed(state.missing) or "the others"
            state.say("waiting since %d s for %s%s" % (now - begun, whom, _because(membership)))
        state.loop.after("peers", REPORT_S, lambda: None)
        state.loop.turn()
    state.loop.cancel("peers")
    state.missing = []


def _because(membership: Membership) -> str:
    problem = membership.problem()
    return ": " + problem if problem else ""


def _wait_for_peers(state: LauncherState) -> None:
    names = [peer["node"] for peer in state.plan.peers]
    missing = _missing_files if state.plan.wait_kind == "files" else _missing_names(state)
    retry_s = FILES_RETRY_S if state.plan.wait_kind == "files" else DNS_RETRY_S
    begun = time.monotonic()
    deadline, report = begun + state.plan.wait_timeout_s, begun + REPORT_S
    while not state.is_over:
        before, unseen = state.missing, missing(state)
        state.missing = [name for name in names if name in unseen]
        if not state.missing:
            return
        if state.missing != before:
            state.on_change()
        now = time.monotonic()
        listed = _listed(state.missing)
        if now >= deadline:
            text = "%d of %d nodes did not come within %g s: %s"
            message = text % (len(state.missing), len(names), state.plan.wait_timeout_s, listed)
            state.failure = NodeFailure("peers", EXIT_PEERS, message)
            state.say(message)
            return
        if now >= report:
            report += REPORT_S
            state.say("waiting since %d s for %s" % (now - begun, listed))
        state.loop.after("peers", min(retry_s, deadline - now), lambda: None)
        state.loop.turn()


def _listed(names: list[str]) -> str:
    return ", ".join(names[:20]) + (" and %d more" % (len(names) - 20) if len(names) > 20 else "")


def _missing_files(state: LauncherState) -> list[str]:
    return [node for node, path in state.plan.wait_files.items() if not os.path.exists(path)]


def _missing_names(state: LauncherState) -> Callable[[LauncherState], list[str]]:
    """Resolve the peers' addresses in a thread, since a lookup may block for many seconds."""
    import _thread
    import socket

    unknown = {peer["node"]: peer["address"] for peer in state.plan.peers}

    def look_up() -> None:
        while unknown:
            for node, address in list(unknown.items()):
                try:
                    socket.getaddrinfo(address, None)
                    del unknown[node]
                except (OSError, UnicodeError):
                    pass
            time.sleep(DNS_RETRY_S)

    _thread.start_new_thread(look_up, ())
    return lambda state: list(unknown)

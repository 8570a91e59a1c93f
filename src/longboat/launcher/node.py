"""One node of a run from its first moment to its last: setup, peers, ranks, end. Only this module knows the order."""

from __future__ import annotations

import os
import sys
import time

from . import environment, processes
from .beats import Beats
from .gang import Gang
from .jsonfiles import read_json, write_json
from .loop import Loop
from .plan import Plan, PlanError, read_plan
from .preparing import prepare
from .ranks import Rank
from .state import Failure, State

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from typing import Any
else:
    import _signal as signal

LEFTOVERS_S = 1.0
FULL_DISK_S = 60.0
RETRY_S = 0.5
UNKILLABLE_S = 30.0
EXIT_INTERNAL, EXIT_USAGE, EXIT_ENGINE, EXIT_HANG = 200, 201, 205, 210


def main(argv: list[str]) -> int:
    if len(argv) != 1:
        sys.stderr.write("usage: launcher PLAN.json\n")
        return EXIT_USAGE
    try:
        plan = read_plan(argv[0])
    except PlanError as error:
        sys.stderr.write("longboat launcher: %s\n" % error)
        return EXIT_INTERNAL
    try:
        node = Node(plan)
    except OSError as error:
        sys.stderr.write("longboat launcher: %s: %s\n" % (error.filename or plan.directory, error.strerror))
        return EXIT_ENGINE
    return node.run()


class Node:
    def __init__(self, plan: Plan) -> None:
        for folder in ("logs", "pipes", "steps"):
            os.makedirs(os.path.join(plan.directory, folder), exist_ok=True)
        self.plan = plan
        self.loop = Loop()
        self.state = State(plan, self.loop)

    def run(self) -> int:
        """Everything, in order. Returns the exit code."""
        try:
            return self._run()
        except OSError as error:
            return self._collapse(EXIT_ENGINE, "%s: %s" % (error.filename or "launcher", error.strerror or error))
        except Exception as error:
            import traceback

            traceback.print_exc()
            return self._collapse(EXIT_INTERNAL, "launcher: %s: %s" % (type(error).__name__, error))

    def _collapse(self, code: int, message: str) -> int:
        """The launcher itself cannot go on: nothing may be left running, and the reason must be told."""
        state = self.state
        state.say(message)
        until = time.monotonic() + UNKILLABLE_S
        self.loop.reap()
        while self.loop.has_children and time.monotonic() < until:
            state.kill()
            time.sleep(0.05)
            self.loop.reap()
        state.failure = Failure("lost", code, message)
        state.write("outcome.json", self._outcome())
        return code

    def _run(self) -> int:
        state, plan = self.state, self.plan
        write_json(state.path("launcher.json"), processes.identity(os.getpid()))
        self.loop.on_signal = self._signalled
        processes.keep_descriptors()
        told = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2)
        self.loop.listen(told)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, told)  # an engine may have us start with them blocked
        self._hold_lifeline()
        self.has_subreaper = processes.become_subreaper()
        os.chdir(plan.workdir)
        environment.provide_package(plan)
        state.env = environment.node_environment(plan, dict(os.environ))
        self.beats = Beats(state)
        self.beats.start()
        if plan.mpi and plan.starter in ("mpirun", "follower"):
            self._serve(plan.mpi)
        prepare(state)
        gang = None if state.is_over else Gang(state)
        if gang is not None:
            state.phase = "running"
            gang.start()
            self.beats.watch(self._hung, gang.killed)
        while state.running or state.is_asking or (state.is_serving and not state.is_over):
            self.loop.turn()
        state.is_done = True
        self._sweep()
        self._drain()
        if gang is not None:
            gang.finish()
        return self._finish()

    def _serve(self, mpi: dict[str, Any]) -> None:
        """Before this node says that it is ready: mpirun may call at once."""
        from .remote import Server, read_token
        from .starters import mpirun_environment

        Server(self.state, int(mpi["port"]), read_token(str(mpi["token_file"])))
        if self.plan.starter == "mpirun":
            self.state.env = mpirun_environment(self.plan, self.state.env)

    def _hold_lifeline(self) -> None:
        try:
            descriptor = int(os.environ.pop(environment.LIFELINE, ""))
            os.set_inheritable(descriptor, False)
            os.set_blocking(descriptor, False)
        except (ValueError, OSError):
            return

        def look() -> None:
            try:
                if os.read(descriptor, 4096):
                    return
            except BlockingIOError:
                return
            except OSError:
                pass
            self.loop.unwatch(descriptor)
            self._end("lost", self.plan.grace_s)

        self.loop.watch(descriptor, look)

    def _signalled(self, number: int) -> None:
        if number == signal.SIGUSR1:
            self._hung(None)
        elif number == signal.SIGUSR2:
            reason, grace_s = self._told()
            self._end(reason, grace_s)
        else:
            self._end("stop", self.plan.grace_s)

    def _told(self) -> tuple[str, float]:
        """Reason and grace in ending.json; without the file another node has failed."""
        try:
            told = read_json(self.state.path("ending.json"))
            grace_s = told.get("grace_s")
            return str(told.get("reason") or "failure"), self.plan.grace_s if grace_s is None else float(grace_s)
        except (OSError, ValueError, AttributeError, TypeError):
            return "failure", self.plan.grace_s

    def _end(self, reason: str, grace_s: float) -> None:
        if self.state.end_by(reason):
            self.state.terminate(grace_s)
        elif grace_s == 0 and not self.state.is_done:  # told again, without grace
            self.state.kill()

    def _hung(self, rank: Rank | None) -> None:
        """Take every rank's stacks, then end them all."""
        state = self.state
        silent = (rank.rank, rank.silent_s()) if rank else self.beats.stalled
        if not state.end_by("hang"):
            return
        from .dump import take_stacks
        from .stacks import describe

        state.failure = failure = Failure("hang", EXIT_HANG, "")
        state.is_asking = True

        def taken() -> None:
            failure.message = describe({each.rank: each.stacks for each in state.ranks if each.stacks}, silent)
            state.is_asking = False
            state.terminate(self.plan.grace_s)

        take_stacks(state, taken)

    def _sweep(self) -> None:
        """End what the first processes left behind.

        Members of groups that were asked to end have the rest of the grace; then the others are asked, with less time.
        """
        state = self.state
        self.loop.reap()
        if not self.has_subreaper:
            self._sweep_outside()
        if not self.loop.has_children:
            return
        given_up: list[bool] = []
        hurries = waits = False
        while self.loop.has_children and not given_up:
            if not hurries and not state.killing and not self._left_behind(asked=True):
                hurries = True
                for pid in self._left_behind(asked=False):
                    processes.send(pid, signal.SIGTERM)
                self.loop.after("kill", LEFTOVERS_S, state.kill)
            if state.killing and not waits:
                waits = True
                self.loop.after("give up", UNKILLABLE_S, lambda: given_up.append(True))
            self.loop.turn()
        if given_up:
            state.say("cannot be killed: %s" % ", ".join(map(str, processes.tree(os.getpid())[1:])))

    def _left_behind(self, asked: bool) -> list[int]:
        """Descendants inside, or outside, of the groups that were asked to end."""
        groups = {pid: processes.stat_fields(pid)[2:3] for pid in processes.tree(os.getpid())[1:]}
        return [pid for pid, group in groups.items() if group and (int(group[0]) in self.state.asked) == asked]

    def _sweep_outside(self) -> None:
        """Without a sub-reaper: whole groups, and whoever carries this node's variables."""
        for group in self.state.groups:
            processes.send_group(group, signal.SIGKILL)
        for pid in processes.carriers(environment.marks(self.plan)):
            processes.send(pid, signal.SIGKILL)

    def _drain(self) -> None:
        """Everything the ranks wrote is in the logs before the outcome is told; a full disk gets time to be cleared."""
        state = self.state
        for name in ("kill", "memory", "stall", "give up"):
            self.loop.cancel(name)
        until = time.monotonic() + FULL_DISK_S
        for stream in state.streams:
            while stream.move() or (stream.problem and time.monotonic() < until):
                if stream.problem:
                    self.loop.after("drain", RETRY_S, lambda: None)
                    self.loop.turn()
            if stream.problem:
                state.say("the end of %s is lost: %s" % (stream.log, stream.problem))
        if state.echo:
            state.echo.finish()

    def _finish(self) -> int:
        state = self.state
        self.loop.cancel("beat")
        if self.plan.starter == "mpirun":
            from .starters import forget_mpirun

            forget_mpirun(state.env, self.plan)
        self.beats.write()
        state.write("outcome.json", self._outcome())
        until = time.monotonic() + FULL_DISK_S
        while state.unwritten and time.monotonic() < until:
            time.sleep(RETRY_S)
            for name, value in list(state.unwritten.items()):
                state.write(name, value)
        return self._result()[0]

    def _outcome(self) -> dict[str, object]:
        failure, ending = self.state.failure, self.state.ending
        code, cause, message, first = self._result()
        return {
            "exit_code": code,
            "cause": cause,
            "message": message,
            "first": first,
            "tail": failure.tail if failure else [],
            "ended": time.time(),
            "ended_ns": time.monotonic_ns(),
            "ended_by": ending.by if ending else None,
        }

    def _result(self) -> tuple[int, str | None, str, dict[str, object] | None]:
        state = self.state
        if state.failure is not None:
            return state.failure.code, state.failure.cause, state.failure.message, state.failure.first
        if state.ending is not None and state.ending.by == "success":
            return 0, None, "", None
        ends = sorted((rank.end.ended_ns, rank.end.code) for rank in state.ranks if rank.end is not None)
        return next((code for _, code in ends if code != 0), 0), None, "", None

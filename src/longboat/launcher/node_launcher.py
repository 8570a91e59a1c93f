"""The launcher of one node: its life from setup over peers and ranks to the end. Only this module knows the order."""

from __future__ import annotations

import os
import sys
import time

from .gang.barrier import prepare
from .node import environment, lifeline, processes
from .node.jsonfiles import write_json
from .node.loop import EventLoop
from .node.plan import EXIT_KILLED, EXIT_REPLACED, TOLD, NodePlan, PlanError, end_request, own_path, read_plan
from .ranks.heartbeat import Heartbeats
from .ranks.rank_group import RankGroup
from .ranks.ranks import Rank
from .ranks.state import LauncherState, NodeFailure
from .sampling.thread import start_sampling

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from typing import Any, Callable

    from .gang.membership import Membership
else:
    import _signal as signal

LEFTOVERS_S = 1.0
"""Between SIGTERM and SIGKILL for what ranks leave behind: their own grace is over."""
FULL_DISK_S = 60.0
"""A full disk may be cleared by hand or by others; the end of the node does not wait longer for it."""
RETRY_S = 0.5  # one write each time; what frees a disk takes seconds
UNKILLABLE_S = 30.0
"""SIGKILL works at once but for processes that hang in the kernel, on a dead mount or driver."""
EVALUATORS = ("evaluator", "eval")
"""Roles that judge checkpoints beside the training, the last one when it has ended."""
EXIT_INTERNAL, EXIT_USAGE, EXIT_ENGINE, EXIT_LOST, EXIT_HANG = 200, 201, 205, 208, 210


def main(argv: list[str], before: Callable[[LauncherState], None] | None = None) -> int:
    """Run the launcher of a node. `before` runs before setup: preparations that only containers need."""
    if len(argv) != 1:
        sys.stderr.write("usage: launcher PLAN.json\n")
        return EXIT_USAGE
    try:
        plan = read_plan(argv[0])
    except PlanError as error:
        sys.stderr.write("longboat launcher: %s\n" % error)
        return EXIT_INTERNAL
    try:
        node = NodeLauncher(plan, before)
    except OSError as error:
        sys.stderr.write("longboat launcher: %s: %s\n" % (error.filename or plan.directory, error.strerror))
        return EXIT_ENGINE
    return node.run()


class NodeLauncher:
    def __init__(self, plan: NodePlan, before: Callable[[LauncherState], None] | None = None) -> None:
        """`before` runs before setup: preparations that only pods and containers need."""
        for folder in ("logs", "pipes", "steps"):
            os.makedirs(os.path.join(plan.directory, folder), exist_ok=True)
        self.plan = plan
        self.loop = EventLoop()
        self.state = LauncherState(plan, self.loop)
        self._before = before
        self._membership: Membership | None = None
        self._is_swept = False  # no process is left
        self._has_begun = False  # the ranks were started
        self._end_at: float | None = None  # a success for which ranks that are not started yet have time until then
        self._is_terminated = False  # SIGTERM came

    def run(self) -> int:
        """Run the node from setup to outcome. Returns the exit code."""
        try:
            return self._run()
        except OSError as error:
            return self._collapse(EXIT_ENGINE, "%s: %s" % (error.filename or "launcher", error.strerror or error))
        except Exception as error:
            import traceback

            self.state.say(traceback.format_exc())
            return self._collapse(EXIT_INTERNAL, "launcher: %s: %s" % (type(error).__name__, error))

    def _collapse(self, code: int, message: str) -> int:
        """End after an internal error of the launcher: kill everything and report the reason."""
        state = self.state
        self.plan.restart = None
        state.say(message)
        until = time.monotonic() + UNKILLABLE_S
        self.loop.reap()
        while self.loop.has_children and time.monotonic() < until:
            state.kill()
            time.sleep(0.05)
            self.loop.reap()
        state.failure = NodeFailure("lost", code, message)
        outcome = state.outcome()
        state.write("outcome.json", outcome)
        verdict = None
        try:
            verdict = self._gang_verdict(outcome)
        except Exception as error:  # it may be the line itself that failed
            state.say("the others were not told: %s" % error)
        self._close(outcome, verdict)
        return code

    def _run(self) -> int:
        state, plan = self.state, self.plan
        write_json(state.path("launcher.json"), processes.identity(os.getpid()))
        self.loop.on_signal = self._signalled
        inherited = processes.keep_descriptors()
        processes.raise_open_files()
        self.loop.listen(lifeline.SIGNALS)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, lifeline.SIGNALS)  # an engine may have us start with them blocked
        engine = lifeline.hold(self.loop, lambda: self._end("lost", plan.grace_s))
        self.has_subreaper = processes.become_subreaper()
        os.chdir(plan.workdir)
        environment.provide_package(plan)
        state.env = environment.node_environment(plan, dict(os.environ))
        self.heartbeats = Heartbeats(state)
        self.heartbeats.start()
        if plan.wait_kind == "line":
            self._join()
        if plan.mpi and plan.starter in ("mpirun", "follower"):
            self._serve(plan.mpi)
        self._prepare()
        if self._membership is not None and self._membership.later is not None and not state.is_over:
            from .pod.restart.in_place import join

            self._drain()
            join(state, self._membership.later)
        ranks = None if state.is_over else RankGroup(state)
        if ranks is not None:
            state.phase = "running"
            ranks.start()
            self._has_begun = True
            self.heartbeats.watch(self._hung, ranks.killed)
            start_sampling(state, self.heartbeats.trees)
            if plan.checkpoint_dir and (plan.checkpoint_store or self._membership is not None):
                from .pod.checkpoint_upload import watch_checkpoints

                watch_checkpoints(state, plan.checkpoint_dir)
            if self._end_at is not None:
                self._end("success", max(0.0, self._end_at - time.monotonic()))
        while state.running or state.is_asking or (state.is_serving and not state.is_over):
            self.loop.turn()
        state.is_done = True
        self._sweep()
        self._is_swept = True
        self._drain()
        state.stop_sampling(plan.echo == "pod" and not plan.keep)
        if ranks is not None:
            ranks.finish()
        code = self._finish()
        if self._membership is not None and self._membership.gets_another:
            return EXIT_REPLACED  # the others go on, and the pod's Job makes another one
        if self._restart is not None:
            from .pod.restart.in_place import go_on

            go_on(state, self._restart, self._is_terminated)
        if ranks is not None and engine is not None and self._may_stay():
            lifeline.stay(self.loop, plan, engine, inherited)
        return code

    @property
    def _restart(self) -> dict[str, Any] | None:
        membership = self._membership
        return membership.restart if membership is not None and not membership.is_leaving else None

    def _may_stay(self) -> bool:
        """Whether this launcher may run the next attempt: its ranks failed or another node's, and none is left."""
        by = self.state.ending.by if self.state.ending is not None else None
        return bool(self.plan.stays) and by in ("failure", "hang") and not self.loop.has_children

    def _prepare(self) -> None:
        """Prepare until the ranks may start; a failure is in `state.failure`."""
        prepare(self.state, self._before, self._membership)
        if self._membership is not None and self.plan.resume_from and not self.state.is_over:
            from .pod.checkpoint_upload import fetch_after

            fetch_after(self.state)

    def _serve(self, mpi: dict[str, Any]) -> None:
        """Serve mpirun's commands. Comes before this node reports ready: mpirun may connect at once."""
        from .gang.handshake import read_token
        from .starters.mpi_server import MpiServer
        from .starters.starters import mpirun_environment

        MpiServer(self.state, int(mpi["port"]), read_token(str(mpi["token_file"])))
        if self.plan.starter == "mpirun":
            self.state.env = mpirun_environment(self.plan, self.state.env)

    def _signalled(self, number: int) -> None:
        if number == signal.SIGUSR1:
            if self._membership is not None:
                self._membership.dump()
            self._hung(None)
        elif number == signal.SIGUSR2:
            reason, grace_s = end_request(self.plan, "ending.json", "failure")
            if reason != "save":
                self._end(reason, grace_s)
            elif self._membership is not None:
                self._membership.tell({"is": "save"})
            elif self.state.ranks and not self.state.is_over:
                self.state.save()
        elif self._membership is not None:
            self._is_terminated = True
            self._end_in_gang(*end_request(self.plan, TOLD, "evicted"))
        else:
            self._end("stop", self.plan.grace_s)

    def _end(self, reason: str, grace_s: float) -> None:
        state = self.state
        is_evaluator = reason == "success" and self.plan.role in EVALUATORS
        if is_evaluator and not self._has_begun and not state.is_over and grace_s > 0:
            # A training can be over before this node is ready: its last checkpoint is judged all the same.
            self._end_at = time.monotonic() + grace_s
            self.loop.after("end", grace_s, lambda: self._end(reason, 0.0))
        elif state.end_by(reason):
            self.loop.cancel("end")
            state.terminate(grace_s, lets_begin=is_evaluator)
        elif state.ending is None or self._is_swept:
            return
        elif grace_s == 0:  # told again, without grace
            state.kill()
        elif not state.is_asking:
            state.hasten(grace_s)

    # in a gang

    def _join(self) -> None:
        """Join the gang before setup, so that the others know that this node lives."""
        from .gang.follower import GangFollower
        from .gang.membership import GangLeader

        if self.plan.node_rank == 0:
            self._membership = GangLeader(self.state, self._follow_order)
        else:
            self._membership = GangFollower(self.state, self._follow_order, self._membership_lost)
        self._membership.stalled = lambda: self.heartbeats.stalled

    def _follow_order(self, order: dict[str, Any]) -> None:
        """Carry out an order of node 0."""
        assert self._membership is not None
        if order["do"] == "go":
            self._membership.is_going = True
            self.plan.resume_from = own_path(self.plan, order.get("resume_from"))
            self.state.env["LONGBOAT_RESUME_FROM"] = self.plan.resume_from or ""
        elif order["do"] == "restart":
            self._membership.restart = order
        elif order["do"] == "dump":
            self._hung(None)
        elif order["do"] == "save":
            self.state.save()
        elif order["do"] == "end":
            self.state.awaited_step = order.get("newest")
            self._end(str(order["reason"]), float(order["grace_s"]))

    def _end_in_gang(self, reason: str, grace_s: float) -> None:
        """Handle SIGTERM: after `--tell` stop the gang; else the pod is being deleted, and the gang fails."""
        assert self._membership is not None
        if reason != "evicted":
            self._membership.is_hurried = True  # who was told to stop does not wait for a node 0 that never came
            self._membership.stop(grace_s)
        elif self.state.ending is None:
            self.state.say("this pod is being taken away")
            self._membership.is_hurried = True
            self._membership.evicted()
            if not self.state.is_done:
                self.state.failure = NodeFailure("preemption", EXIT_LOST, "the pod was taken away by the cluster")
        self._end(reason, grace_s)

    def _membership_lost(self, message: str) -> None:
        if self.state.end_by("lost"):
            self.state.say(message)
            self.state.failure = NodeFailure("lost", EXIT_LOST, message)
            self.state.terminate(self.plan.grace_s)

    def _hung(self, rank: Rank | None) -> None:
        """Dump the stacks of all ranks, then end them."""
        state = self.state
        silent = (rank.rank, rank.silent_s()) if rank else self.heartbeats.stalled
        if not state.end_by("hang"):
            return
        from .ranks.stack_dump import take_stacks
        from .vendored import load

        state.failure = failure = NodeFailure("hang", EXIT_HANG, "")
        state.is_asking = True

        def taken() -> None:
            stacks = {each.rank: each.stacks for each in state.ranks if each.stacks}
            failure.message = load("core.stacks").describe(stacks, silent)
            state.is_asking = False
            state.terminate(self.plan.grace_s)

        take_stacks(state, taken)

    def _sweep(self) -> None:
        """End processes that outlive the ranks.

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
            if not hurries and not state.killing and not state.left_behind(asked=True):
                hurries = True
                for pid in state.left_behind(asked=False):
                    processes.send(pid, signal.SIGTERM)
                self.loop.after("kill", LEFTOVERS_S, state.kill)
            if state.killing and not waits:
                waits = True
                self.loop.after("give up", UNKILLABLE_S, lambda: given_up.append(True))
            self.loop.turn()
        if given_up:
            state.say("cannot be killed: %s" % ", ".join(map(str, processes.tree(os.getpid())[1:])))

    def _sweep_outside(self) -> None:
        """Without a subreaper: end whole groups, and processes found by this node's variables."""
        for group in self.state.groups:
            processes.send_group(group, signal.SIGKILL)
        for pid in processes.carriers(environment.marks(self.plan)):
            processes.send(pid, signal.SIGKILL)

    def _drain(self) -> None:
        """Write all remaining output to the logs before the outcome; waits a while for a full disk."""
        state = self.state
        for name in ("kill", "memory", "stall", "give up"):
            self.loop.cancel(name)
        until = time.monotonic() + FULL_DISK_S
        for stream in state.streams:
            while stream.move() or (stream.problem and time.monotonic() < until):
                if stream.problem:
                    self.loop.after("drain", RETRY_S, lambda: None)
                    self.loop.turn()
            stream.finish()
            if stream.problem:
                state.say("the end of %s is lost: %s" % (stream.log, stream.problem))
        if state.pod_log:
            state.pod_log.finish()

    def _finish(self) -> int:
        state = self.state
        if self._membership is None:
            self.loop.cancel("beat")
        if self.plan.starter == "mpirun":
            from .starters.starters import forget_mpirun

            forget_mpirun(state.env, self.plan)
        self.heartbeats.write()
        if state.sender is not None:
            state.sender.hurry()
        outcome = state.outcome()
        state.write("outcome.json", outcome)
        until = time.monotonic() + FULL_DISK_S
        while state.unwritten and time.monotonic() < until:
            self.loop.after("unwritten", RETRY_S, lambda: None)
            self.loop.turn()
            for name, value in list(state.unwritten.items()):
                state.write(name, value)
        verdict = self._gang_verdict(outcome)
        self._close(outcome, verdict)
        code = state.result()[0]
        code = code or (int(verdict["exit_code"] or 0) if verdict and verdict["cause"] else 0)
        taken = {EXIT_REPLACED, EXIT_KILLED if self.plan.restart else EXIT_REPLACED}  # a rank's; its report has it
        return EXIT_LOST if code in taken and self.plan.echo == "pod" else code

    def _close(self, outcome: dict[str, object], verdict: dict[str, Any] | None) -> None:
        if self.plan.termination or self.plan.keep or self.plan.artifacts or self.state.sender is not None:
            from .pod.finalize import close

            close(self.state, outcome, verdict)
        if self.plan.echo == "pod" and self._restart is None:
            from .pod.log_feed import wait_for_readers

            wait_for_readers(self.state)

    def _gang_verdict(self, outcome: dict[str, object]) -> dict[str, Any] | None:
        """Report this node's outcome; on node 0 wait for all nodes and return the verdict."""
        if self._membership is None:
            return None
        from .pod.finalize import announce

        announce(self.state, outcome, None)  # should this process be killed while it waits for the others
        self._membership.ended(outcome)
        verdict = self._membership.wait_for_end()
        if verdict is not None:
            self.state.write("verdict.json", verdict)
        return verdict

"""Advice after a failure: what to do next, by its cause and its last words. Pure."""

from __future__ import annotations

import signal
from collections.abc import Mapping

from longboat.core.guards.lazy_pattern import lazy_pattern
from longboat.core.runs import Failure, RunStatus
from longboat.engines.shared.files import OF_ANOTHER_USER, SHARED_HOME

NO_SPACE = "No space left on device"
"""As the C library says it, and with it every program."""

DISK_FULL = "the disk is full"
"""As Longboat says it of its own files."""

ADVICE: Mapping[str, str] = {
    "exception": "mend the exception above, then run again",
    "oom": "lower the batch size or the data loader's workers, or raise `memory`",
    "hang": "compare the ranks' stacks: the odd one out did not reach the collective the others wait in",
    "timeout": "raise `timeout`, or checkpoint and resume with `--resume RUN`",
    "lost": "set `retries` to have the run taken up again from its newest checkpoint",
    "peers": "look at launcher.log of the missing nodes in the run's directory",
    "setup": "run the setup command by hand in a copy of the code",
    "data": "check the URL and the checksum in `data`",
    "image": "try it by hand: podman pull IMAGE (or docker); `--set image=null` runs the job without an image",
    "signal": "SIGKILL without our doing is often the kernel's out-of-memory killer: see `dmesg`",
}
"""What to do next, by cause; RUN stands for the run's name, IMAGE for its image. `signal` is that of SIGKILL."""

SIGNAL_ADVICE: Mapping[int, str] = {
    signal.SIGSEGV: "SIGSEGV: native code read or wrote a wrong address; the end of its log has the Python stack",
    signal.SIGBUS: "SIGBUS: mapped memory could not be had, often a full /dev/shm: raise `shm`, or use fewer workers",
    signal.SIGABRT: "SIGABRT: it ended itself (a failed assertion, an error in C++ or NCCL): see its last lines",
    signal.SIGFPE: "SIGFPE: native code divided by zero; the end of its log has the Python stack",
    signal.SIGILL: "SIGILL: an instruction that this CPU does not have: a package was built for another machine",
    signal.SIGTERM: "SIGTERM: something asked it to end, and Longboat did not: the script, or a tool beside it",
    signal.SIGINT: "SIGINT: something interrupted it, and Longboat did not: the script, or a tool beside it",
    signal.SIGHUP: "SIGHUP: the process lost its terminal or its parent: start it without `nohup` or `screen`",
    signal.SIGPIPE: "SIGPIPE: it wrote to a pipe that nobody reads any more: see the command behind the `|`",
    signal.SIGXCPU: "SIGXCPU: a limit of CPU time was reached: see `ulimit -t`",
    signal.SIGXFSZ: "SIGXFSZ: a limit of file size was reached: see `ulimit -f`",
}
"""The same for a rank that died of another signal, in one true sentence each."""


GPU_MEMORY = ("CUDA out of memory", "HIP out of memory", "CUDA_ERROR_OUT_OF_MEMORY", "RESOURCE_EXHAUSTED")
"""As PyTorch, the drivers and XLA say that a GPU has no memory left."""

INSTALL = "install "
_BASH_WORD = lazy_pattern(r": (source|\[\[|pushd|popd|shopt|declare): (?:command )?not found")
"""As a plain shell says that it does not know a word of bash."""
_MODULE = lazy_pattern(r"ModuleNotFoundError: No module named '(\w+)")


def next_steps(status: RunStatus, failure: Failure, advice: Mapping[str, str]) -> tuple[str, ...]:
    """Commands and changes to suggest for a failure. `advice`: by cause, where an engine knows better."""
    name, rank = status.name, failure.rank
    if failure.cause == "dependency":
        return _chain_steps(status)
    steps = [f"longboat logs {name} --rank {rank.rank}" if rank is not None else f"longboat logs {name}"]
    step = _by_words(status, failure)
    if step is None and (step := _by_cause(failure, advice)) is not None:
        step = step.replace("RUN", name).replace("IMAGE", _images(status))
    if step is not None:
        steps.append(step)
    if status.retries == 0 and failure.cause in ("signal", "oom"):
        steps.append("`retries: 2` restarts the whole gang from the newest complete checkpoint")
    return tuple(steps)


def _chain_steps(status: RunStatus) -> tuple[str, ...]:
    """Suggestions for a run that never started because a run in its `after` did not succeed."""
    after = status.spec.after[:3] if status.spec is not None else ()
    looks = [f"longboat explain {run}" for run in after]
    again = f"mend and rerun what failed, then longboat rerun {status.name} --after NEW-RUN (or --no-after)"
    return (*looks, again)


def _by_words(status: RunStatus, failure: Failure) -> str | None:
    """A suggestion from exit code and last log lines, which are more specific than the cause."""
    rank = failure.rank
    said = (failure.message, *(rank.tail if rank is not None else failure.tail))
    if DISK_FULL in failure.message:
        return "free some space where it says: `df -h` shows how full it is, `longboat prune` removes old runs"
    if failure.cause == "setup" and OF_ANOTHER_USER in failure.message:
        return SHARED_HOME
    if any(NO_SPACE in text for text in said):
        return "a disk or a quota was full: `df -h` and `df -i` show which; free some space, or write less"
    if failure.exit_code == 127:
        word = next((match[1] for text in said if (match := _BASH_WORD.search(text))), None)
        if word is not None:
            instead = "write `. FILE`, or" if word == "source" else "write"
            return f"text in `run` is for /bin/sh, and {word} is a word of bash: {instead} `run: [bash, -c, '...']`"
        return "the command was not found: check `run` and `setup`"
    if failure.exit_code == 126:
        return "the command is not executable: `chmod +x` it, or name its interpreter: `python FILE`, `sh FILE`"
    missing = next((match[1] for text in said if (match := _MODULE.search(text))), None)
    if missing is not None:
        return f"{INSTALL}{missing} where the run has its Python: `setup: pip install ...`, or an image that has it"
    if failure.cause == "oom" and any(words in text for text in said for words in GPU_MEMORY):
        return "the GPU's memory was full: lower the batch size per rank, or ask for GPUs with more memory"
    if failure.cause == "hang" and _rank_count(status) == 1:
        return "its stack shows where it waits; raise `stall` if it may be silent for so long"
    return None


def _by_cause(failure: Failure, advice: Mapping[str, str]) -> str | None:
    if failure.cause != "signal":
        return advice.get(failure.cause)
    number = (failure.rank.signal if failure.rank is not None else None) or failure.exit_code - 128
    return advice.get("signal") if number == signal.SIGKILL else SIGNAL_ADVICE.get(number)


def _rank_count(status: RunStatus) -> int:
    return status.spec.ranks if status.spec is not None else len(status.ranks)


def _images(status: RunStatus) -> str:
    images = [role.image for role in status.spec.roles if role.image] if status.spec is not None else []
    return images[0] if len(set(images)) == 1 else "IMAGE"

"""Why a rank failed: the last lines of its log, the Python traceback, the cause. Pure: bytes in, facts out."""

from __future__ import annotations

TAIL_LINES = 20  # of the log in a report, where it has no traceback: a screen
TAIL_BYTES = 256 * 1024
"""Of the log, looked at for the cause: room for the longest traceback that is kept and much noise after it."""
_LINE_MAX = 2000  # the last line of a traceback; some hold a whole tensor
_TRACEBACK_MAX = 20000  # a deep traceback with its source lines
_NEAR_END = 30  # lines: a traceback further up was survived
_HEADER = "Traceback (most recent call last):"
_GROUP_HEADER = "+ Exception Group " + _HEADER
_CHAINS = (
    "During handling of the above exception, another exception occurred:",
    "The above exception was the direct cause of the following exception:",
)
_UNHEADED = ("SyntaxError:", "IndentationError:", "TabError:")
_OUT_OF_MEMORY = (
    "MemoryError",
    "CUDA out of memory",
    "OutOfMemoryError",
    "RESOURCE_EXHAUSTED",
    "can't allocate memory",
    "std::bad_alloc",
)
_SIGNALS = {
    1: "SIGHUP", 2: "SIGINT", 3: "SIGQUIT", 4: "SIGILL", 5: "SIGTRAP", 6: "SIGABRT", 7: "SIGBUS", 8: "SIGFPE",
    9: "SIGKILL", 11: "SIGSEGV", 13: "SIGPIPE", 14: "SIGALRM", 15: "SIGTERM", 24: "SIGXCPU", 25: "SIGXFSZ",
    31: "SIGSYS",
}  # fmt: skip


class EndEvidence:
    """Evidence about a rank's end besides its output: OOM kills and memory limits."""

    __slots__ = ("group", "kernel_oom", "limit", "over_limit")

    def __init__(
        self,
        kernel_oom: bool = False,
        over_limit: int | None = None,
        limit: int | None = None,
        group: tuple[int, int | None] | None = None,
    ) -> None:
        self.kernel_oom = kernel_oom  # the kernel's count of such kills rose since the start
        self.over_limit = over_limit  # bytes at which the launcher itself ended the rank
        self.limit = limit
        self.group = group  # limit and peak of the control group, where it has a limit


def lines_of(data: bytes) -> list[str]:
    """The lines of a log's end, cut to a sane length, without torch's prefix `[rank0]: `."""
    lines = data.decode("utf-8", "replace").splitlines()
    return [_plain(line)[:_LINE_MAX] for line in lines]


def _plain(line: str) -> str:
    if line.startswith("[rank"):
        head, mark, rest = line.partition("]:")
        if mark and head[5:].isdecimal():
            return rest[1:] if rest.startswith(" ") else rest
    return line


def tail_of(err: bytes, out: bytes) -> list[str]:
    """The last lines of stderr, else of stdout."""
    for data in (err, out):
        lines = lines_of(data)
        if any(line.strip() for line in lines):
            return lines[-TAIL_LINES:]
    return []


def find_traceback(lines: list[str]) -> tuple[str, str]:
    """The last traceback with its chained ones, and its last line (`ValueError: bad`). Empty: none."""
    starts = [number for number, line in enumerate(lines) if line.strip().startswith((_HEADER, _GROUP_HEADER))]
    if not starts:
        return _unheaded(lines)
    end = _exception_line(lines, starts[-1])
    if end is None:
        return "", ""
    message = lines[end].strip(" |")
    while end + 1 < len(lines) and lines[end + 1][:1] in (" ", "\t") and lines[end + 1].strip():
        end += 1
    if len(lines) - end > _NEAR_END:
        return "", ""
    first = len(starts) - 1
    while first > 0 and any(chain in "\n".join(lines[starts[first - 1] : starts[first]]) for chain in _CHAINS):
        first -= 1
    text = "\n".join(lines[starts[first] : end + 1])
    if len(text) > _TRACEBACK_MAX:
        text = text[: _TRACEBACK_MAX // 2] + "\n...\n" + text[-_TRACEBACK_MAX // 2 :]
    return text, message


def _exception_line(lines: list[str], start: int) -> int | None:
    """The first line after the frames; in an exception group it is indented with `|`, like the frames."""
    bar = "  | " if lines[start].lstrip().startswith("+") else " " * (len(lines[start]) - len(lines[start].lstrip()))
    for number in range(start + 1, len(lines)):
        line = lines[number]
        if line.startswith(bar) and line[len(bar) :].strip() and not line[len(bar)].isspace():
            return number
    return None


def _unheaded(lines: list[str]) -> tuple[str, str]:
    """A syntax error, which Python prints without the traceback header."""
    for end in range(len(lines) - 1, max(-1, len(lines) - _NEAR_END), -1):
        if lines[end].startswith(_UNHEADED):
            for start in range(end, max(-1, end - 6), -1):
                if lines[start].startswith('  File "'):
                    return "\n".join(lines[start : end + 1]), lines[end].strip()
    return "", ""


def judge(code: int, number: int | None, err: bytes, evidence: EndEvidence) -> tuple[str, str, str]:
    """Cause, message and traceback of a rank that failed by itself."""
    lines = lines_of(err)
    traceback, message = find_traceback(lines)
    if evidence.over_limit is not None and evidence.limit is not None:
        reason = "used %s, over the limit of %s" % (in_units(evidence.over_limit), in_units(evidence.limit))
        return "oom", reason, ""
    if number == 9 and evidence.kernel_oom:
        return "oom", "killed by the kernel: out of memory" + _group_words(evidence), ""
    last = last_words(lines)
    for text in (message, last) if (traceback or number) else (message,):
        if any(word in text for word in _OUT_OF_MEMORY):
            return "oom", text[:_LINE_MAX], traceback
    if number is not None:
        return "signal", "killed by " + signal_name(number), traceback
    if traceback:
        return "exception", message, traceback
    return "exit", ("exit code %d: %s" % (code, last[:300])) if last else "exit code %d" % code, ""


def _group_words(evidence: EndEvidence) -> str:
    if evidence.group is None:
        return ""
    limit, peak = evidence.group
    used = ", and %s were used" % in_units(peak) if peak else ""
    return " (the limit of its control group is %s%s)" % (in_units(limit), used)


def mpirun_culprit(lines: list[str]) -> tuple[int, int | None] | None:
    """The rank that Open MPI's mpirun reports as the first to fail, and its signal."""
    for line in reversed(lines):
        if "noticed that process rank" in line and "exited on signal" in line:
            rank, number = (_number(_word_after(line, mark)) for mark in ("process rank", "on signal"))
            return None if rank is None or number is None else (rank, number)
        if line.strip().startswith("Process name: [["):
            rank = _number(line.rpartition(",")[2].strip(" ]"))
            return None if rank is None else (rank, None)
    return None


def _word_after(line: str, mark: str) -> str:
    """The word behind the last mark; empty where the line ends with it."""
    return (line.rpartition(mark)[2].split() or [""])[0].rstrip(".")


def _number(word: str) -> int | None:
    """None for what is none, and for more than a rank may be: a rank of a job may print the like of mpirun's lines."""
    return int(word) if word.isdecimal() and len(word) < 8 else None


def last_words(lines: list[str]) -> str:
    """The last meaningful line: not blank, not a ruler, not a notice of our own package."""
    said = (line.strip() for line in reversed(lines) if any(char.isalnum() for char in line))
    return next((line for line in said if not line.startswith("longboat: ")), "")


def signal_name(number: int) -> str:
    return "%s (signal %d)" % (_SIGNALS[number], number) if number in _SIGNALS else "signal %d" % number


def in_units(count: int) -> str:
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return "%.4g %s" % (value, unit)
        value /= 1024
    return "%.4g TiB" % value

"""What a training script gets from `import longboat`. All of it is optional, and harmless outside of a run.

Standard library only, Python >= 3.8, nothing of the rest of Longboat: the launcher gives this very file to every rank,
whatever image it runs in. No error in here ever breaks a training; it is told on stderr at most.
"""

from __future__ import annotations

import json
import os
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType
    from typing import Any

_WRITE_S = 1.0
"""Readers look every two seconds; writing each of thousands of steps would cost the training more."""
_PUBLISH_TRIES = 10  # renames that others are faster at; only two attempts at once, or two scripts, race for a name
_HASH_BYTES = 1 << 30
"""Checkpoints up to this size are hashed, a second at most; of larger ones sizes are noted, for the training waits."""
_FILES_MAX = 48 << 10  # of a marker 64 KiB are read
_RANK_VARIABLES = ("LONGBOAT_RANK", "RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")
_LOCAL_VARIABLES = ("LONGBOAT_LOCAL_RANK", "LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID")
_SIZE_VARIABLES = ("WORLD_SIZE", "LONGBOAT_WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS")

_KEEP_S = 0.02
"""At most fifty points a second are kept of each rank: a loop of thousands of steps is a curve all the same."""
_MOST_KEPT = 200  # with metrics that are reported apart: some at every step, others at every epoch
_SERIES_BYTES = 1 << 20
"""Of points that the launcher has not taken yet: it takes them every few seconds, unless it is gone."""

_clock = time.monotonic
_next_write = _next_keep = 0.0
_latest: tuple[int, dict[str, Any]] | None = None
_names: Any = ()
_dense = 0  # in a run: so many points of each second are kept however close together they are
_kept: list[tuple[int, float, dict[str, Any]]] = []
_said: tuple[int, tuple[str, ...]] | None = None  # the last point that was written
_trace = os.environ.get("LONGBOAT_TRACE_STEPS", "")  # in a drill: ATTEMPT:STEP, where ranks wait for the kill
_HOLD_S = 60.0  # the kill comes within seconds; should it fail, the training goes on
_stop_seen = False
_listens = False
_warned: set[str] = set()
_files: dict[str, str] = {}  # by name: what is put into the checkpoint that is completed next


def step(number: int, **metrics: Any) -> None:
    """Report a step and numbers that belong to it. Written about once a second, and the last one at exit."""
    global _next_write, _next_keep, _latest, _names
    _latest = (number, metrics)
    now = _clock()
    if now >= _next_keep or len(_kept) < _dense or metrics.keys() != _names:
        _next_keep, _names = now + _KEEP_S, metrics.keys()
        _keep(number, metrics)
        if now >= _next_write:
            _next_write = now + _WRITE_S
            _write_step()
    if _trace:
        _trace_step(number, metrics)


def rank() -> int:
    """This process's rank in the run; 0 outside of one."""
    return _number(_RANK_VARIABLES, 0)


def world_size() -> int:
    """The number of ranks; 1 outside of a run."""
    return _number(_SIZE_VARIABLES, 1)


def params() -> dict[str, Any]:
    """The parameters of this run, from a sweep or from `params` of the job; none outside of a run."""
    return dict(json.loads(os.environ.get("LONGBOAT_PARAMS") or "{}"))


def checkpoint_dir() -> str:
    """The folder for checkpoints, the same in every attempt; `./checkpoints` outside of a run. It exists."""
    folder = os.environ.get("LONGBOAT_CHECKPOINT_DIR") or os.path.join(".", "checkpoints")
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError as error:
        _warn("%s: %s" % (folder, error.strerror))
    return folder


def resume_from() -> str | None:
    """The newest complete checkpoint to go on from, or None at a first start."""
    return os.environ.get("LONGBOAT_RESUME_FROM") or None


def should_stop() -> bool:
    """True once the run is asked to stop: save and leave the loop.

    The first call makes SIGTERM set this flag instead of ending the process, unless the script handles it already.
    """
    global _stop_seen
    if not _listens:
        _listen_for_stop()
    if not _stop_seen:
        folder = os.environ.get("LONGBOAT_NODE_DIR")
        _stop_seen = bool(folder) and os.path.exists(os.path.join(str(folder), "stop"))
    return _stop_seen


class checkpoint:
    """`with longboat.checkpoint(step, accuracy=0.9) as folder:` - write a checkpoint into the folder; when the block
    ends well it is completed and becomes `step-N`. Metrics are kept with it, as are those of `step` for the same step.

    One rank of the run writes: the first of the first role that decides success, which is rank 0 where there is only
    one role. In any other rank the folder is a temporary one that is thrown away.
    """

    def __init__(self, number: int, **metrics: Any) -> None:
        self._number = int(number)
        self._metrics = metrics
        self._final: str | None = None
        self._folder = ""

    def __enter__(self) -> str:
        if _writes():
            parent = checkpoint_dir()
            name = "step-%d" % self._number
            try:
                _check_fence(parent, self._number)
                self._folder = os.path.join(parent, _temporary_name(name))
                os.mkdir(self._folder)
                self._final = os.path.join(parent, name)
                return self._folder
            except OSError as error:
                _warn("no checkpoint of step %d: %s: %s" % (self._number, self._folder or parent, error.strerror))
        import tempfile

        self._folder = tempfile.mkdtemp(prefix="longboat-")
        return self._folder

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        try:
            if self._final is not None and kind is None:
                _complete(self._folder, self._final, self._number, self._metrics)
        except OSError as problem:
            _warn("no checkpoint of step %d: %s" % (self._number, problem if problem.errno else problem.strerror))
        _remove(self._folder)
        _files.clear()  # of a block that failed, too


def _writes() -> bool:
    """Whether this rank writes checkpoints. Not simply rank 0, which may be a parameter server."""
    node, writer = os.environ.get("LONGBOAT_NODE", ""), os.environ.get("LONGBOAT_CHECKPOINT_WRITER")
    _, _, index = node.rpartition("-")
    if not index:
        return rank() == 0
    is_first = index == "0" and _number(_LOCAL_VARIABLES, 0) == 0
    if is_first and writer and node != writer:
        _warn("checkpoints of %s are not kept: %s writes those of the run" % (node, writer))
        return False
    return is_first


def _temporary_name(name: str) -> str:
    """A name unique across processes, attempts and machines: pids in pods repeat, and storage may be shared."""
    node = os.environ.get("LONGBOAT_NODE") or "node"
    return ".%s.a%d.%s.%s.tmp" % (name, _attempt(), node, os.urandom(8).hex())


def _attempt() -> int:
    return _number(("LONGBOAT_ATTEMPT",), 0)


def _check_fence(parent: str, number: int = 0) -> None:
    """Raise OSError for a step that no checkpoint has, and if a newer attempt has written its fence, `.attempt-K`."""
    if not 0 <= number < 10**18:
        raise OSError(0, "steps count from 0, with at most 18 digits")
    numbers = [name[9:] for name in os.listdir(parent) if name.startswith(".attempt-")]
    newest = max([int(number) for number in numbers if number.isdecimal()] or [-1])
    if newest > _attempt():
        raise OSError(0, "attempt %d of the run has started, and this is attempt %d" % (newest + 1, _attempt() + 1))


def _complete(folder: str, final: str, number: int, metrics: dict[str, Any]) -> None:
    """Flush the files, write the marker, rename: a crash at any point leaves a complete checkpoint or none."""
    for name in list(_files):
        with open(os.path.join(folder, name), "w") as file:
            file.write(_files.pop(name))
    paths = [os.path.join(parent, file) for parent, _, files in os.walk(folder) for file in files]
    for path in [*paths, *(parent for parent, _, _ in os.walk(folder))]:
        _sync(path)
    fields: dict[str, Any] = {"step": number, "attempt": _attempt(), "time": time.time(), "id": os.urandom(8).hex()}
    for key, name in (("uid", "LONGBOAT_RUN_UID"), ("node", "LONGBOAT_NODE")):
        if os.environ.get(name):
            fields[key] = os.environ[name]
    given = {**(_latest[1] if _latest is not None and _latest[0] == number else {}), **metrics}
    numbers = [(name, _number_of(value)) for name, value in given.items()]
    fields["metrics"] = {name: value for name, value in numbers if value is not None and value - value == 0}
    fields.update(_contents(folder, paths))
    with open(os.path.join(folder, ".complete"), "w") as marker:
        json.dump(fields, marker)
    _sync(marker.name)
    _sync(folder)
    _publish(folder, final)


def _contents(folder: str, paths: list[str]) -> dict[str, Any]:
    """What `longboat checkpoint verify` compares with: size and hash of every file, as far as a marker has room."""
    import hashlib

    sizes = {path: os.stat(path).st_size for path in paths}
    total, files = sum(sizes.values()), {}
    for path, size in sizes.items():
        digest = None
        if total <= _HASH_BYTES:
            state = hashlib.sha256()
            with open(path, "rb") as file:
                for block in iter(lambda: file.read(1 << 20), b""):
                    state.update(block)
            digest = state.hexdigest()
        files[os.path.relpath(path, folder)] = [size, digest]
    contents: dict[str, Any] = {"count": len(sizes), "bytes": total, "files": files}
    if len(json.dumps(files)) > _FILES_MAX:
        del contents["files"]
    return contents


def _publish(folder: str, final: str) -> None:
    """Rename the folder to its name, replacing an older one of the same step, but never a newer attempt's."""
    import errno

    old = "%s.old" % folder
    for _ in range(_PUBLISH_TRIES):
        _check_fence(os.path.dirname(final))
        try:
            os.rename(final, old)
        except FileNotFoundError:
            pass
        is_newer = _attempt_of(old) > _attempt()
        try:
            os.rename(old if is_newer else folder, final)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                if os.path.isdir(old):
                    os.rename(old, final)
                raise
            _remove(old)  # somebody else has put his there meanwhile, which is newer than this
            continue
        if is_newer:
            raise OSError(0, "a newer attempt has written it meanwhile")
        _sync(os.path.dirname(final))
        _remove(old)
        return
    raise OSError(0, "others write it at the same time")


def _attempt_of(folder: str) -> int:
    """The attempt that completed a checkpoint; -1: missing, unknown, or of another run."""
    try:
        with open(os.path.join(folder, ".complete")) as marker:
            fields = json.loads(marker.read(65536))
        is_other = fields.get("uid", "") != os.environ.get("LONGBOAT_RUN_UID", "")
        return -1 if is_other and "uid" in fields else int(fields["attempt"])
    except Exception:
        return -1


def _sync(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # a pipe is refused, and not waited for
    try:
        os.fsync(descriptor)
    except OSError as error:
        if not os.path.isdir(path):  # some network file systems refuse it for folders
            raise OSError(error.errno, error.strerror, path) from None
    finally:
        os.close(descriptor)


def _remove(folder: str) -> None:
    import shutil

    shutil.rmtree(folder, ignore_errors=True)


def _keep(number: int, metrics: dict[str, Any]) -> None:
    """Keep a point of the series. Plain numbers only: a tensor would hold the memory of a whole step, and wait."""
    if len(_kept) < _MOST_KEPT and os.environ.get("LONGBOAT_NODE_DIR"):
        plain = {name: value for name, value in metrics.items() if type(value) in (float, int)}
        _kept.append((number, time.time(), plain))


def _write_step() -> None:
    global _said
    folder = os.environ.get("LONGBOAT_NODE_DIR")
    if not folder or _latest is None:
        return
    try:
        number, metrics = _latest
        now = time.time()
        numbers = {name: _number_of(value) for name, value in metrics.items()}
        finite = {name: value if value is not None and value - value == 0 else None for name, value in numbers.items()}
        path = os.path.join(folder, "steps", str(rank()))
        with open(path + ".tmp", "w") as file:
            file.write(json.dumps({"step": int(number), "time": now, "metrics": finite}))
        os.replace(path + ".tmp", path)
        points = [point for point in _kept if point[0] != number or point[2].keys() - metrics.keys()]
        del _kept[:]
        if points or _said != (number, tuple(metrics)):  # at exit the last one is written again
            _said = (number, tuple(metrics))
            points.append((number, now, {name: value for name, value in numbers.items() if value is not None}))
            with open(path + ".series", "a") as file:  # the launcher takes it away
                if file.tell() < _SERIES_BYTES:
                    file.write("".join(json.dumps([int(n), at, kept]) + "\n" for n, at, kept in points))
    except Exception as error:
        _warn("step not reported: %s" % error)


def _trace_step(number: int, metrics: dict[str, Any]) -> None:
    """A line on stderr for each step: `longboat drill` reads them. At the step of a kill all ranks wait for it: they
    would be past that step before anybody could know that they were there."""
    global _trace
    try:
        numbers = {name: _number_of(value) for name, value in metrics.items()}
        fields = {"step": int(number), "rank": rank(), "pid": os.getpid(), "metrics": numbers}
        sys.stderr.flush()
        os.write(2, b"longboat-step %s\n" % json.dumps(fields).encode())
        holds = [int(hold.split(":")[1]) for hold in _trace.split(",") if hold.startswith("%d:" % _attempt())]
        until, stop = _clock() + _HOLD_S, os.path.join(os.environ["LONGBOAT_NODE_DIR"], "stop")
        if holds and number >= holds[0]:
            _trace = "1"
            while _clock() < until and not _stop_seen and not os.path.exists(stop):
                time.sleep(0.02)
    except Exception as error:
        _warn("step not traced: %s" % error)


def _number_of(value: Any) -> float | None:
    try:
        return float(value)
    except Exception:
        if value is not None:
            _warn("a metric is not a number but a %s, and is not kept" % type(value).__name__)
        return None


def _number(names: tuple[str, ...], otherwise: int) -> int:
    for name in names:
        text = os.environ.get(name, "")
        if text.isdecimal():
            return int(text)
    return otherwise


def _warn(text: str) -> None:
    if text not in _warned:
        _warned.add(text)
        try:
            sys.stderr.write("longboat: %s\n" % text)
        except Exception:
            pass


def _listen_for_stop() -> None:
    global _listens
    _listens = True
    try:
        import signal

        if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, _note_stop)
    except Exception:
        pass  # not the main thread: the stop file tells as well


def _note_stop(number: int, frame: object) -> None:
    global _stop_seen
    _stop_seen = True


def _begin() -> None:
    """Set up a rank: dump stacks on SIGUSR1, write the last step at exit."""
    global _dense
    folder = os.environ.get("LONGBOAT_NODE_DIR")
    if not folder:
        return
    _dense = int(_WRITE_S / _KEEP_S)
    try:
        import atexit
        import faulthandler
        import signal

        atexit.register(_write_step)
        if signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL:
            faulthandler.register(signal.SIGUSR1, file=2, all_threads=True, chain=False)
            with open(os.path.join(folder, "steps", "%d.usr1" % rank()), "a") as file:
                file.write("%d\n" % os.getpid())
    except Exception:
        pass


_begin()

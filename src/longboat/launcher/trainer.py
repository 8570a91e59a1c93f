"""What a training script gets from `import longboat`. All of it is optional, and harmless outside of a run.

Standard library only, Python >= 3.8, nothing of the rest of Longboat: the launcher gives this very file to every rank,
whatever image it runs in. No error in here ever breaks a training; it is told on stderr at most.
"""

from __future__ import annotations

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
_RANK_VARIABLES = ("LONGBOAT_RANK", "RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")
_LOCAL_VARIABLES = ("LONGBOAT_LOCAL_RANK", "LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID")
_SIZE_VARIABLES = ("WORLD_SIZE", "LONGBOAT_WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS")

_clock = time.monotonic
_next_write = 0.0
_latest: tuple[int, dict[str, Any]] | None = None
_stop_seen = False
_listens = False


def step(number: int, **metrics: Any) -> None:
    """Report a step and numbers that belong to it. Written about once a second, and the last one at exit."""
    global _next_write, _latest
    _latest = (number, metrics)
    if _clock() >= _next_write:
        _next_write = _clock() + _WRITE_S
        _write_step()


def rank() -> int:
    """This process's rank in the run; 0 outside of one."""
    return _number(_RANK_VARIABLES, 0)


def world_size() -> int:
    """The number of ranks; 1 outside of a run."""
    return _number(_SIZE_VARIABLES, 1)


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
    """`with longboat.checkpoint(step) as folder:` - write a checkpoint into the folder; when the block ends well it is
    completed and becomes `step-N`.

    One rank of the run writes: the first of the first role that decides success, which is rank 0 where there is only
    one role. In any other rank the folder is a temporary one that is thrown away.
    """

    def __init__(self, number: int) -> None:
        self._number = int(number)
        self._final: str | None = None
        self._folder = ""

    def __enter__(self) -> str:
        if _writes():
            parent = checkpoint_dir()
            name = "step-%d" % self._number
            try:
                _check_fence(parent)
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
                _complete(self._folder, self._final, self._number)
        except OSError as problem:
            _warn("no checkpoint of step %d: %s" % (self._number, problem if problem.errno else problem.strerror))
        _remove(self._folder)


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


def _check_fence(parent: str) -> None:
    """Raise OSError if a newer attempt has written its fence, `.attempt-K`."""
    numbers = [name[9:] for name in os.listdir(parent) if name.startswith(".attempt-")]
    newest = max([int(number) for number in numbers if number.isdigit()] or [-1])
    if newest > _attempt():
        raise OSError(0, "attempt %d of the run has started, and this is attempt %d" % (newest + 1, _attempt() + 1))


def _complete(folder: str, final: str, number: int) -> None:
    """Flush the files, write the marker, rename: a crash at any point leaves a complete checkpoint or none."""
    import json

    for parent, _, files in os.walk(folder):
        for file in files:
            _sync(os.path.join(parent, file))
        _sync(parent)
    fields = {"step": number, "attempt": _attempt(), "time": time.time(), "id": os.urandom(8).hex()}
    for key, name in (("uid", "LONGBOAT_RUN_UID"), ("node", "LONGBOAT_NODE")):
        if os.environ.get(name):
            fields[key] = os.environ[name]
    with open(os.path.join(folder, ".complete"), "w") as marker:
        json.dump(fields, marker)
        marker.flush()
        os.fsync(marker.fileno())
    _sync(folder)
    _publish(folder, final)


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
    import json

    try:
        with open(os.path.join(folder, ".complete")) as marker:
            fields = json.loads(marker.read(65536))
        is_other = fields.get("uid", "") != os.environ.get("LONGBOAT_RUN_UID", "")
        return -1 if is_other and "uid" in fields else int(fields["attempt"])
    except Exception:
        return -1


def _sync(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError:
        if not os.path.isdir(path):  # some network file systems refuse it for folders
            raise
    finally:
        os.close(descriptor)


def _remove(folder: str) -> None:
    import shutil

    shutil.rmtree(folder, ignore_errors=True)


def _write_step() -> None:
    folder = os.environ.get("LONGBOAT_NODE_DIR")
    if not folder or _latest is None:
        return
    try:
        import json

        number, metrics = _latest
        numbers = {name: _finite(value) for name, value in metrics.items()}
        text = json.dumps({"step": int(number), "time": time.time(), "metrics": numbers})
        path = os.path.join(folder, "steps", str(rank()))
        with open(path + ".tmp", "w") as file:
            file.write(text)
        os.replace(path + ".tmp", path)
    except Exception as error:
        _warn("step not reported: %s" % error)


def _finite(value: Any) -> float | None:
    try:
        number = float(value)
    except Exception:
        return None
    return number if number - number == 0 else None


def _number(names: tuple[str, ...], otherwise: int) -> int:
    for name in names:
        text = os.environ.get(name, "")
        if text.isdigit():
            return int(text)
    return otherwise


_warned: set[str] = set()


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
    folder = os.environ.get("LONGBOAT_NODE_DIR")
    if not folder:
        return
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


def _extend() -> None:
    """Keep modules of an installed Longboat importable beside this package of a rank."""
    own = os.path.dirname(os.path.abspath(__file__))
    path: list[str] = globals()["__path__"]
    for entry in sys.path:
        folder = os.path.join(entry or ".", "longboat")
        if os.path.abspath(folder) != own and os.path.isfile(os.path.join(folder, "__init__.py")):
            path.append(folder)
    for finder in sys.meta_path:  # editable installs
        if getattr(finder, "__module__", "").startswith("__editable__"):
            try:
                spec = finder.find_spec("longboat", None)
                path.extend(spec.submodule_search_locations or () if spec else ())
            except Exception:
                pass


def __getattr__(name: str) -> Any:
    """Take every other name from an installed Longboat, if there is one."""
    path = globals().get("__path__", [])
    if name.startswith("__") and name != "__version__" or len(path) < 2:
        raise AttributeError("module 'longboat' has no attribute %r" % name)
    installed = sys.modules.get("longboat._installed")
    if installed is None:
        import importlib.util

        spec = importlib.util.spec_from_file_location("longboat._installed", os.path.join(path[1], "__init__.py"))
        if spec is None or spec.loader is None:
            raise AttributeError("module 'longboat' has no attribute %r" % name)
        installed = importlib.util.module_from_spec(spec)
        sys.modules["longboat._installed"] = installed
        spec.loader.exec_module(installed)
    return getattr(installed, name)


_begin()

"""`longboat`, and `python -m longboat`: loads the command line, so that Ctrl-C meanwhile is neither lost nor a
traceback."""

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType

_AGAIN_S = 0.02
"""An import is over soon; a person does not notice so short a wait."""
_loading = True
_YOUNG = 10_000
"""Objects between two collections: with Python's 700, a tenth of the loading is a search for garbage; there is none."""


def main() -> None:
    """Run the command line. While it is being loaded Ctrl-C leaves at once: nothing has been done yet."""
    global _loading
    put_theirs_last()
    import gc
    import signal

    gc.set_threshold(_YOUNG)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # else the shell started us with it ignored
        signal.signal(signal.SIGINT, _interrupted)
    from longboat.cli.main import main as enter

    _loading = False
    enter()


def put_theirs_last() -> None:
    """Modules on the user's PYTHONPATH, or beside him after `-m`, never stand in for Python's own: a project may well
    have a `queue.py`. Before anything else is imported."""
    theirs = [os.path.abspath(root) for root in os.environ.get("PYTHONPATH", "").split(os.pathsep) if root]
    if __name__ == "__main__" and sys.path:
        theirs.append(sys.path[0])
    sys.path.sort(key=theirs.__contains__)


def _interrupted(_number: int, frame: "FrameType | None") -> None:
    """Ctrl-C as an exception, but never in the middle of an import or of `__del__`, where it may be swallowed."""
    if _loading:
        os.write(2, b"error: interrupted\n")
        os._exit(130)
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib") or frame.f_code.co_name == "__del__":
            import _thread

            _thread.start_new_thread(_again, (_thread.get_ident(),))
            return
        frame = frame.f_back
    raise KeyboardInterrupt


def _again(main_thread: int) -> None:
    import signal
    import time

    time.sleep(_AGAIN_S)
    signal.pthread_kill(main_thread, signal.SIGINT)


if __name__ == "__main__":
    main()

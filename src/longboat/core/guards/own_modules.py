"""Programs of Longboat's own processes, in which modules on the user's PYTHONPATH never stand in for Python's or ours:
a project may well have a `queue.py`. Ranks have their path as it is.
"""

from __future__ import annotations

_START = (
    "import os, sys; del sys.path[0]; "
    "theirs = [os.path.abspath(root) for root in os.environ.get('PYTHONPATH', '').split(os.pathsep) if root]; "
    "sys.path.sort(key=theirs.__contains__); "
    "sys.path += [root for root in sys.argv[{first}:] if root not in sys.path]; "
)
"""Not `-m`, which would import from the folder the user happens to be in; not `-E`: our own may be on PYTHONPATH."""


def own_program(statements: str, *, first_root: int) -> str:
    """For `python -c`. `first_root`: where among the arguments those folders of modules begin that the caller has."""
    return _START.format(first=first_root) + statements

"""Last part of the package `longboat` that ranks import: an installed Longboat's names beside the trainer's functions.

Not a module of the launcher: its text follows that of `trainer` in one file (`node.environment.provide_package`), so it
has no `from __future__`. Standard library only, Python >= 3.8.
"""

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


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


def __getattr__(name: str) -> "Any":
    """Take every other name from an installed Longboat, if there is one."""
    if name in ("sharded_checkpoint", "new_checkpoints", "evaluated"):
        from . import following, sharding

        return getattr(sharding if name == "sharded_checkpoint" else following, name)
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


_extend()

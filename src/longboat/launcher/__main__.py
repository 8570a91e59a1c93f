"""Start of the launcher as a folder, a script or a zip file: `python -I -S <here> PLAN.json`.

The folder is made importable under a name of its own, so that it works wherever it is copied and never meets an
installed Longboat. Started as a script (`<folder>/__main__.py`) it is up some milliseconds sooner than as a folder.
"""

import os
import sys

_MODULES = {
    "--standin": "starters.torchrun_worker",
    "--agent": "starters.mpi_agent",
    "--pod": "pod_launcher",
    "--container": "container_launcher",
    "--isolated": "isolated_command",
    "--import": "pod.fetch",
    "--tell": "pod.control",
    "--status": "pod.control",
    "--logs": "pod.log_feed",
    "--stdin": "pod.rank_stdin",
    "--ready": "pod.replica.ready",
    "--checkpoints": "pod.replica.followed",
    "--workbench": "workbench.serve",
}


def start() -> int:
    here = __file__.rpartition("/")[0] or "."
    if sys.path and sys.path[0] == here:
        del sys.path[0]  # as a folder or zip file: its modules must not be found as top-level ones
    package = type(sys)("longboat_launcher")
    package.__path__ = [here]
    sys.modules["longboat_launcher"] = package
    option = sys.argv[1] if len(sys.argv) > 1 else ""
    module = _MODULES.get(option, "node_launcher")
    return int(__import__("longboat_launcher." + module, fromlist=["main"]).main(sys.argv[1:]))


if __name__ == "__main__":
    code = start()
    sys.stderr.flush()
    os._exit(code)  # nothing is left to tidy up; the interpreter would take its time for it

"""The startup probe of a served replica: `launcher.pyz --ready FOLDER PORT PATH GOLDEN TOLERANCE`, `-` for none.

Exit code 0 once it answers, and its answers are the golden ones of the checkpoint it was given.
"""

from __future__ import annotations

import os
import sys

from ...vendored import load

RESUMED = "resumed"
"""File of the node: the checkpoint that its ranks were given."""
_HOST = "127.0.0.1"


def main(argv: list[str]) -> int:
    problem = _problem(*argv[1:6])
    if problem is not None:
        sys.stdout.write(problem + "\n")
        sys.stdout.flush()
    return 0 if problem is None else 1


def _problem(root: str, port: str, path: str, golden: str, tolerance: str) -> str | None:
    import http.client

    probe = load("serving.probe")
    problem = probe.check_answers(_HOST, int(port), None if path == "-" else path)
    if problem is not None or golden == "-":
        return None if problem is None else str(problem)
    try:
        with open(os.path.join(root, "node", RESUMED)) as file:
            folder = file.read()
        cases = load("serving.golden").read_cases(folder) if folder else None
        allowed = None if tolerance == "-" else float(tolerance)
        problem = probe.check_golden(_HOST, int(port), cases, allowed) if cases else None
    except load("serving.golden").DamagedCases as error:
        problem = str(error)
    except (OSError, http.client.HTTPException) as error:
        problem = probe.reason_of(error, int(port))
    return None if problem is None else str(problem)

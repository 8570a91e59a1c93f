"""`few`: tests failed, and few enough to be tried again. `none`: none has failed. pytest's own note of them tells.

A run that failed although no test did (a kind of test that was required and is missing, something left behind) is
neither.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

NOTED = Path(".pytest_cache/v/cache/lastfailed")
MOST = 20


def main(question: str) -> int:
    failed = sorted(json.loads(NOTED.read_text())) if NOTED.is_file() else []
    if question == "few":
        return 0 if 0 < len(failed) <= MOST else 1
    for name in failed:
        print(f"failed twice: {name}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))

"""Checks that the launcher, and what travels with it, is Python 3.8, the oldest it has to run on. Syntax only."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

from longboat.launcher.vendored import FILES

OLDEST = (3, 8)
LAUNCHER = Path(__file__).resolve().parent.parent / "src" / "longboat" / "launcher"


def main() -> int:
    files = sorted([*LAUNCHER.rglob("*.py"), *(LAUNCHER.parent / name for name in FILES)])
    failed = False
    for file in files:
        try:
            ast.parse(file.read_text(encoding="utf-8"), filename=str(file), feature_version=OLDEST)
        except SyntaxError as error:
            failed = True
            print(f"{file}:{error.lineno}: not Python {OLDEST[0]}.{OLDEST[1]}: {error.msg}")
    if not files:
        print(f"no files in {LAUNCHER}")
    return int(failed or not files)


if __name__ == "__main__":
    sys.exit(main())

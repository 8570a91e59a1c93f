"""The real optuna, with what its samplers need, in an environment of its own: made once in LONGBOAT_TEST_CACHE."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.storage.realstores import installed, pip_install

OPTUNA = "optuna==4.6.0"
OTHERS = ("cmaes==0.12.0", "scipy")


def optuna_packages() -> Path:
    """The folder to import it from. Raises Unavailable."""
    folder = installed(OPTUNA.replace("==", "-"), lambda folder: pip_install("optuna", folder, OPTUNA, *OTHERS))
    return next(folder.glob("lib/python*/site-packages"))


if __name__ == "__main__":
    print(optuna_packages())

"""Modules of Longboat that travel with the launcher: safe trees, data import, checkpoints.

They are the very files that the rest of Longboat uses, standard library only and Python >= 3.8. In the launcher's one
file they lie in the folder `longboat`; beside the launcher's folder they are where they always are. Nothing of them is
imported before it is needed, and nothing else of Longboat is ever found this way.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

FILES = (
    "core/__init__.py",
    "core/errors.py",
    "bundles/__init__.py",
    "bundles/checkout.py",
    "bundles/disk.py",
    "bundles/durable.py",
    "bundles/extraction.py",
    "bundles/limits.py",
    "bundles/merging.py",
    "bundles/trees.py",
    "storage/__init__.py",
    "storage/awskeys.py",
    "storage/azure.py",
    "storage/azurekeys.py",
    "storage/bearers.py",
    "storage/checkpoints.py",
    "storage/data.py",
    "storage/download.py",
    "storage/exchanges.py",
    "storage/fences.py",
    "storage/gcs.py",
    "storage/mirrors.py",
    "storage/objectstores.py",
    "storage/prefixes.py",
    "storage/s3.py",
    "storage/sigv4.py",
    "storage/stores.py",
    "storage/transfers.py",
    "storage/urls.py",
    "storage/web.py",
)


def load(name: str) -> Any:
    """The module `longboat.<name>`, for example `storage.data`."""
    if "longboat" not in sys.modules:
        here = os.path.dirname(os.path.abspath(__file__))
        package = type(sys)("longboat")
        package.__path__ = [os.path.dirname(here) if os.path.isdir(here) else os.path.join(here, "longboat")]
        sys.modules["longboat"] = package
    return __import__("longboat." + name, fromlist=["load"])

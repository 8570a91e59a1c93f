"""Modules of Longboat that travel with the launcher: the judge of failures, safe trees, data import, checkpoints.

They are the very files that the rest of Longboat uses, standard library only and Python >= 3.8. In the launcher's one
file they are packed together, which makes them a third smaller; beside the launcher's folder they are where they always
are. Nothing of them is imported before it is needed, and nothing else of Longboat is ever found this way.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

FILES = (
    "bundles/__init__.py",
    "bundles/checkout.py",
    "bundles/disk.py",
    "bundles/durable.py",
    "bundles/extraction.py",
    "bundles/merging.py",
    "bundles/parallel.py",
    "bundles/source/__init__.py",
    "bundles/source/limits.py",
    "bundles/trees.py",
    "bundles/workdir.py",
    "core/__init__.py",
    "core/errors.py",
    "core/first_failure.py",
    "core/guards/__init__.py",
    "core/guards/lazy_pattern.py",
    "core/guards/masking.py",
    "core/stacks.py",
    "metrics/__init__.py",
    "metrics/event_files.py",
    "serving/__init__.py",
    "serving/golden.py",
    "serving/probe.py",
    "storage/__init__.py",
    "storage/checkpoint_mirror.py",
    "storage/checkpoints.py",
    "storage/credentials/__init__.py",
    "storage/credentials/aws.py",
    "storage/credentials/azure.py",
    "storage/credentials/oauth_token.py",
    "storage/credentials/sigv4.py",
    "storage/data.py",
    "storage/download.py",
    "storage/download_prefix.py",
    "storage/evaluations.py",
    "storage/fences.py",
    "storage/http.py",
    "storage/imported/__init__.py",
    "storage/imported/import_program.py",
    "storage/http_source.py",
    "storage/progress.py",
    "storage/retention.py",
    "storage/stores/__init__.py",
    "storage/stores/azure.py",
    "storage/stores/gcs.py",
    "storage/stores/object_store.py",
    "storage/stores/registry.py",
    "storage/stores/s3.py",
    "storage/transfers.py",
    "storage/urls.py",
)


PACKED = "longboat.json"
"""Of the launcher's one file: the text of each of these, by its name."""


def load(name: str) -> Any:
    """Load the module `longboat.<name>`, for example `storage.data`."""
    if "longboat" not in sys.modules:
        here = os.path.dirname(os.path.abspath(__file__))
        package = type(sys)("longboat")
        package.__path__ = [os.path.dirname(here)] if os.path.isdir(here) else []
        if not os.path.isdir(here):
            sys.meta_path.append(PackedModules(_packed(os.path.join(here, PACKED))))
        sys.modules["longboat"] = package
    return __import__("longboat." + name, fromlist=["load"])


def _packed(path: str) -> dict[str, str]:
    import json

    texts: dict[str, str] = json.loads(globals()["__loader__"].get_data(path))
    return texts


class PackedModules:
    """Imports modules of Longboat from their texts. `__spec__` is at hand where `importlib.machinery` would be read."""

    def __init__(self, texts: dict[str, str]) -> None:
        self._texts = texts

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        file = name[len("longboat.") :].replace(".", "/")
        if not name.startswith("longboat."):
            return None
        make_spec: Any = type(__spec__)
        for origin, is_package in ((file + ".py", False), (file + "/__init__.py", True)):
            if origin in self._texts:
                return make_spec(name, self, origin=origin, is_package=is_package)
        return None

    def create_module(self, spec: Any) -> None:
        return None

    def exec_module(self, module: Any) -> None:
        origin = module.__spec__.origin
        exec(compile(self._texts[origin], "longboat/" + origin, "exec", 0, True), module.__dict__)

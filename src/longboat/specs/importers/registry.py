"""SkyPilot and dstack task files become Longboat job files, with a list of what could not be translated. Pure."""

from __future__ import annotations

from typing import Literal

from longboat.core.errors import JobError, Problem
from longboat.core.frameworks import starter_of
from longboat.core.jobs import Value
from longboat.specs.fields.job_fields import JOB
from longboat.specs.importers import dstack, skypilot
from longboat.specs.importers.import_draft import ImportDraft
from longboat.specs.yaml.yaml12 import parse_text
from longboat.specs.yaml.yaml_tree import Mistakes, YamlNode


class Imported(Value, frozen=True):
    source: Literal["skypilot", "dstack"]
    text: str
    untranslated: tuple[str, ...] = ()  # "field: why"


def import_text(text: str, *, file: str) -> Imported:
    """The job file that says the same, as far as it can. Raises JobError for what is neither of the two."""
    mistakes = Mistakes()
    root = parse_text(text.removeprefix("\ufeff"), file=file, mistakes=mistakes)
    mistakes.raise_if_any()
    if root is None or not isinstance(root.value, dict):
        raise _refused("expected a SkyPilot or dstack task file, which is a mapping", file)
    source = _source(root, file)
    draft = ImportDraft()
    (dstack if source == "dstack" else skypilot).translate(root, draft)
    run = draft.fields.get("run", "")
    if "gpus" in draft.fields and starter_of("none", tuple(run) if isinstance(run, list) else run) == "torchrun":
        draft.set("procs", "auto", source="procs")  # their files leave the count to torchrun's own flags
    draft.set("aliases", [source], source="aliases")
    tool = "a dstack task file" if source == "dstack" else "a SkyPilot task file"
    body = draft.text(f"Translated from {tool}, {file}.")
    return Imported(source=source, text=body, untranslated=tuple(draft.untranslated))


def _source(root: YamlNode, file: str) -> Literal["skypilot", "dstack"]:
    keys = set(root.value) if isinstance(root.value, dict) else set()
    kind = root.value["type"].text if isinstance(root.value, dict) and "type" in root.value else None
    if kind == "task":
        return "dstack"
    if kind is not None:
        raise _refused(f"found a dstack file of type {kind[:40]}; only tasks can be translated", file)
    own = {field.name for field in JOB.fields} - skypilot.FIELDS
    if keys & own and not keys & (skypilot.FIELDS - {field.name for field in JOB.fields}):
        raise _refused("this looks like a Longboat job file already", file)
    if keys & skypilot.FIELDS:
        return "skypilot"
    raise _refused("found neither a SkyPilot task (run, resources, ...) nor a dstack task (type: task)", file)


def _refused(message: str, file: str) -> JobError:
    return JobError([Problem(message, file=file)])

"""SkyPilot and dstack task files become Longboat job files, with a list of what could not be translated. Pure."""

from __future__ import annotations

from typing import Literal

from longboat.core.errors import JobError, Problem
from longboat.core.frameworks import starter_of
from longboat.core.jobs import Value
from longboat.core.words import counted
from longboat.specs.fields.job_fields import JOB
from longboat.specs.fields.other_tools import SKYPILOT_FIELDS
from longboat.specs.importers import dstack, skypilot
from longboat.specs.importers.import_draft import ImportDraft, entries, text_of
from longboat.specs.yaml.yaml12 import parse_text, split_documents
from longboat.specs.yaml.yaml_tree import Mistakes, YamlNode


class Imported(Value, frozen=True):
    source: Literal["skypilot", "dstack"]
    text: str
    untranslated: tuple[str, ...] = ()  # "field: why"


def import_text(text: str, *, file: str, task: str | None = None) -> Imported:
    """The job file that says the same, as far as it can. Raises JobError for what is neither of the two.

    `task`: which one of a file of several documents, by name or by number from 1 on.
    """
    root = _one_task(_documents(text.removeprefix("\ufeff"), file), file, task)
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


def _documents(text: str, file: str) -> list[YamlNode]:
    mistakes = Mistakes()
    roots = [parse_text(document, file=file, mistakes=mistakes) for document in split_documents(text)]
    mistakes.raise_if_any()
    mappings = [root for root in roots if root is not None and isinstance(root.value, dict)]
    if not mappings:
        raise _refused("expected a SkyPilot or dstack task file, which is a mapping", file)
    return mappings


def _one_task(roots: list[YamlNode], file: str, wanted: str | None) -> YamlNode:
    """A SkyPilot pipeline is a document with its name, and one for each task."""
    tasks = [root for root in roots if len(roots) == 1 or set(entries(root)) - {"name", "execution"}]
    names = [text_of(entries(root).get("name")) or str(number) for number, root in enumerate(tasks, 1)]
    if wanted is None and len(tasks) == 1:
        return tasks[0]
    chosen = [root for number, root in enumerate(tasks, 1) if wanted in (names[number - 1], str(number))]
    if chosen:
        return chosen[0]
    listed = ", ".join(names[:20]) or "none"
    text = f"the file has {counted(len(tasks), 'task')}: {listed}"
    message = text if wanted is None else f"there is no task {wanted[:63]}; {text}"
    raise JobError(
        [Problem(message, file=file, hint="choose one with --task NAME; each becomes a job file of its own")]
    )


def _source(root: YamlNode, file: str) -> Literal["skypilot", "dstack"]:
    keys = set(root.value) if isinstance(root.value, dict) else set()
    kind = root.value["type"].text if isinstance(root.value, dict) and "type" in root.value else None
    if kind == "task":
        return "dstack"
    if kind is not None:
        raise _refused(f"found a dstack file of type {kind[:40]}; only tasks can be translated", file)
    own = {field.name for field in JOB.fields} - SKYPILOT_FIELDS
    if keys & own and not keys & (SKYPILOT_FIELDS - {field.name for field in JOB.fields}):
        raise _refused("this looks like a Longboat job file already", file)
    if keys & SKYPILOT_FIELDS:
        return "skypilot"
    raise _refused(
        "found no SkyPilot task (run, resources, ...), dstack task (type: task), acs-engine file "
        "(properties.agentPoolProfiles) or Juju bundle (applications with charms)",
        file,
    )


def _refused(message: str, file: str) -> JobError:
    return JobError([Problem(message, file=file)])

"""SkyPilot task files: what each field becomes. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from longboat.specs.fields.other_tools import SKYPILOT_FIELDS
from longboat.specs.fields.rules import clean_target, is_below, suggest_name
from longboat.specs.importers.import_draft import (
    ImportDraft,
    entries,
    gibibytes,
    is_secret,
    number_at_least,
    text_of,
    whole_of,
)
from longboat.specs.yaml.yaml_tree import YamlNode

_LOST = {
    "service": "Longboat trains, it does not serve",
    "pool": "Longboat has no worker pools",
    "config": "settings of SkyPilot itself",
    "experimental": "settings of SkyPilot itself",
    "event_callback": "there are no callbacks",
    "inputs": "not used by Longboat",
    "outputs": "not used by Longboat",
    "file_mounts_mapping": "internal to SkyPilot",
    "storage_mounts": "object stores are not mounted; use data or volumes",
}
_LOST_RESOURCES = {
    "infra": "the engine decides where a run goes",
    "cloud": "the engine decides where a run goes",
    "region": "the engine decides where a run goes",
    "zone": "the engine decides where a run goes",
    "instance_type": "ask for gpus, cpus and memory instead",
    "use_spot": "whether machines are preemptible is a property of the cluster",
    "disk_tier": "a property of the cluster",
    "network_tier": "a property of the cluster",
    "local_disk": "a property of the cluster",
    "max_hourly_cost": "Longboat knows no prices",
    "ports": "ports are not opened to the outside",
    "autostop": "a run ends with its command",
    "accelerator_args": "not supported",
    "hooks": "not supported",
    "any_of": "one job asks for one kind of machine; write the one you want",
    "ordered": "one job asks for one kind of machine; write the one you want",
    "volumes": "use the field volumes",
    "priority_class": "write priority as a number",
}


_VARIABLE = re.compile(r"\$(?:\{([A-Za-z_][A-Za-z0-9_]*)\}|([A-Za-z_][A-Za-z0-9_]*))")
_EXPANDED_THERE = ("run", "setup", "envs", "secrets")
"""Fields whose variables are the shell's to expand, or that define them."""


def translate(root: YamlNode, draft: ImportDraft) -> None:
    known = {name: text for name, value in entries(entries(root).get("envs")).items() if (text := text_of(value))}
    public = {name: text for name, text in known.items() if not is_secret(name, text)}
    for key, given in entries(root).items():
        node = given if key in _EXPANDED_THERE else _expanded(given, public)
        if key in _LOST:
            draft.lost(key, _LOST[key])
        elif key not in SKYPILOT_FIELDS:
            draft.lost(key, "not a field that Longboat knows of SkyPilot")
        elif node.value is not None:
            _field(key, node, draft)
    if "workdir" not in draft.fields:
        draft.set("workdir", "none", source="workdir")


def _expanded(node: YamlNode, variables: Mapping[str, str]) -> YamlNode:
    """`${VAR}` and `$VAR` replaced by what `envs` says; what it does not say stays."""
    if isinstance(node.value, dict):
        texts = {key: _expand(key, variables) for key in node.value}
        return node._replace(value={texts[key]: _expanded(item, variables) for key, item in node.value.items()})
    if isinstance(node.value, list):
        return node._replace(value=[_expanded(item, variables) for item in node.value])
    if isinstance(node.value, str) and "$" in node.text:
        text = _expand(node.text, variables)
        return node._replace(value=text, text=text)
    return node


def _expand(text: str, variables: Mapping[str, str]) -> str:
    return _VARIABLE.sub(lambda match: variables.get(match[1] or match[2], match[0]), text)


def _field(key: str, node: YamlNode, draft: ImportDraft) -> None:
    text = text_of(node)
    if key == "name":
        name = suggest_name(text or "")
        draft.set("name", name, source="name")
        if name != text:
            draft.lost("name", f"was not a valid name here and became {name}")
    elif key == "workdir":
        if text is None:
            draft.lost("workdir", "code from a git repository is not fetched; check it out and name the folder")
        draft.set("workdir", text, source="workdir")
    elif key == "num_nodes":
        draft.set("nodes", whole_of(node), source="num_nodes")
    elif key in ("setup", "run"):
        draft.command(key, text or "", source=key)
    elif key == "envs":
        for name, value in entries(node).items():
            draft.variable(name, text_of(value), source=f"envs.{name}")
    elif key == "secrets":
        for name, value in entries(node).items():
            draft.put("secrets", name, {}, source=f"secrets.{name}")
            if text_of(value):
                draft.lost(f"secrets.{name}", f"its value was not copied; set {name} in your environment")
    elif key == "resources":
        _resources(node, draft)
    elif key == "file_mounts":
        for target, source in entries(node).items():
            _file_mount(target, source, draft)
    elif key == "volumes":
        _volumes(node, draft)


def _volumes(node: YamlNode, draft: ImportDraft) -> None:
    for target, volume in entries(node).items():
        name = text_of(volume) or text_of(entries(volume).get("name"))
        if name is None:
            draft.lost(f"volumes.{target}", "only volumes by name are translated")
        else:
            draft.put("volumes", target, {"claim": name}, source=f"volumes.{target}")


def _file_mount(target: str, source: YamlNode, draft: ImportDraft) -> None:
    where = f"file_mounts.{target}"
    mode = (text_of(entries(source).get("mode")) or ("COPY" if source.is_scalar else "MOUNT")).upper()
    origin = text_of(source) or text_of(entries(source).get("source"))
    if origin is None:
        draft.lost(where, "a bucket without a source has no counterpart; use volumes")
    elif "$" in origin:
        draft.lost(where, f"the variable in {origin[:80]} has no value here; write the address")
    elif "://" in origin and mode == "COPY":
        draft.add("data", {"url": _as_folder(origin), "to": target, "unpack": False}, source=where)
        volumes = draft.fields.get("volumes", {})
        if target.startswith("/") and not any(is_below(clean_target(target), volume) for volume in volumes):
            draft.put("volumes", target, {"scratch": True}, source=where)
    elif "://" in origin:
        draft.lost(where, f"object stores are not mounted (mode {mode}); import with data, or use a volume")
    else:
        draft.put("volumes", target, {"path": origin, "read_only": True}, source=where)


def _as_folder(url: str) -> str:
    """A bucket, or a name without an ending, is a folder there: all objects below it."""
    scheme, _, rest = url.partition("://")
    if scheme in ("http", "https") or url.endswith("/"):
        return url
    _, slash, name = rest.partition("/")
    return url if slash and "." in name.rpartition("/")[2] else f"{url}/"


def _resources(node: YamlNode, draft: ImportDraft) -> None:
    for key, value in entries(node).items():
        source = f"resources.{key}"
        text = text_of(value)
        if value.value is None or key.startswith("_"):
            continue
        if key in _LOST_RESOURCES:
            draft.lost(source, _LOST_RESOURCES[key])
        elif key == "accelerators":
            _accelerators(value, draft)
        elif key == "cpus":
            draft.set("cpus", number_at_least(text), source=source)
        elif key == "memory":
            draft.set("memory", gibibytes(text), source=source)
        elif key in ("disk_size", "ephemeral_storage"):
            draft.set("disk", gibibytes(text), source=source)
        elif key == "image_id":
            _image(text, draft)
        elif key == "labels":
            for name, label in entries(value).items():
                draft.put("labels", name, text_of(label) or "", source=f"{source}.{name}")
        elif key == "priority":
            draft.set("priority", whole_of(value), source=source)
        elif key in ("job_recovery", "spot_recovery"):
            _recovery(value, draft)
        else:
            draft.lost(source, "not a field that Longboat knows of SkyPilot")


def _accelerators(node: YamlNode, draft: ImportDraft) -> None:
    source = "resources.accelerators"
    choices: list[str] = []
    if isinstance(node.value, list):
        choices = [text_of(item) or "" for item in node.value]
    elif isinstance(node.value, dict):
        # `{H100: 8}` is a mapping; `{H100:8, H200:8}` is a set: names without values.
        choices = [name if count.value is None else f"{name}:{text_of(count)}" for name, count in node.value.items()]
    else:
        choices = [part for part in re.split(r"[{},'\"\s]+", text_of(node) or "") if part]
    if not choices:
        return
    if len(choices) > 1:
        draft.lost(source, f"one job asks for one type of GPU; the first of {len(choices)} was taken")
    kind, _, count = choices[0].partition(":")
    if kind.lower().startswith("tpu"):
        draft.lost(source, "TPUs are not supported")
        return
    if "." in count:
        draft.lost(source, f"GPUs are given out whole; {count} became 1")
        count = "1"
    draft.set("gpus", f"{kind}:{count or 1}", source=source)


def _image(text: str | None, draft: ImportDraft) -> None:
    if text is not None and text.startswith("docker:"):
        draft.set("image", text.removeprefix("docker:"), source="resources.image_id")
    else:
        draft.lost("resources.image_id", "machine images of a cloud have no counterpart; name a container image")


def _recovery(node: YamlNode, draft: ImportDraft) -> None:
    fields = entries(node)
    retries: dict[str, Any] = {}
    if "max_restarts_on_errors" in fields:
        retries["count"] = whole_of(fields["max_restarts_on_errors"])
    codes = fields.get("recover_on_exit_codes")
    if codes is not None:
        listed = codes.value if isinstance(codes.value, list) else [codes]
        retries["on"] = [code for code in map(whole_of, listed) if code != 0]
        retries.setdefault("count", 3)
    if retries:
        draft.set("retries", retries, source="resources.job_recovery")
    for key in fields:
        if key not in ("max_restarts_on_errors", "recover_on_exit_codes"):
            draft.lost(f"resources.job_recovery.{key}", "a retry starts again wherever the run fits")
    if node.is_scalar:
        draft.lost("resources.job_recovery", "a retry starts again wherever the run fits")

"""dstack task files: what each field becomes. Pure."""

from __future__ import annotations

import re
from typing import Any

from longboat.specs.fields.rules import suggest_name
from longboat.specs.importers.import_draft import (
    ImportDraft,
    at_least,
    entries,
    gibibytes,
    number_at_least,
    text_of,
    whole_of,
)
from longboat.specs.yaml.yaml_tree import YamlNode

_LOST = {
    "user": "the image's own user is used",
    "privileged": "containers are never privileged",
    "entrypoint": "the command is started directly",
    "working_dir": "commands run in the copy of the code",
    "home_dir": "not used",
    "registry_auth": "access to a registry is set up in the cluster",
    "python": "choose an image with the Python you need",
    "nvcc": "choose an image with nvcc",
    "docker": "there is no Docker inside a run",
    "single_branch": "code is not fetched from git",
    "shell": "commands are run by sh, or by bash where they need it",
    "ports": "ports are not opened to the outside",
    "backends": "the engine decides where a run goes",
    "regions": "the engine decides where a run goes",
    "availability_zones": "the engine decides where a run goes",
    "instance_types": "ask for gpus, cpus and memory instead",
    "instances": "the engine decides where a run goes",
    "fleets": "the engine decides where a run goes",
    "reservation": "a property of the cluster",
    "spot_policy": "whether machines are preemptible is a property of the cluster",
    "max_price": "prices limit no run; budgets do",
    "creation_policy": "a property of the cluster",
    "idle_duration": "a property of the cluster",
    "utilization_policy": "not supported; stall ends a run that makes no progress",
    "startup_order": "all nodes of a run start together",
    "stop_criteria": "use roles and ends",
    "schedule": "runs are not scheduled by time",
    "tags": "use labels",
    "init": "not part of a task",
}
_EVENTS = {"interruption": ["preemption", "lost"], "error": ["exception", "exit", "signal", "oom"], "no-capacity": []}
_INTERPOLATION = re.compile(r"\$\{\{\s*([A-Za-z0-9_.-]*)\s*\}\}")
_SECRET = re.compile(r"\s*\$\{\{\s*secrets\.([A-Za-z0-9_-]+)\s*\}\}\s*")


def translate(root: YamlNode, draft: ImportDraft) -> None:
    for key, node in entries(root).items():
        if key == "type" or node.value is None:
            continue
        if key in _LOST:
            draft.lost(key, _LOST[key])
        elif key == "resources":
            _resources(node, draft)
        else:
            _field(key, node, draft)


def _field(key: str, node: YamlNode, draft: ImportDraft) -> None:
    text = text_of(node)
    if key == "name":
        draft.set("name", suggest_name(text or ""), source="name")
        if suggest_name(text or "") != text:
            draft.lost("name", f"was not a valid name here and became {suggest_name(text or '')}")
    elif key == "image":
        draft.set("image", text, source="image")
    elif key == "nodes":
        draft.set("nodes", whole_of(node), source="nodes")
    elif key == "priority":
        draft.set("priority", whole_of(node), source="priority")
    elif key in ("commands", "setup"):
        _commands(key, node, draft)
    elif key == "env":
        _env(node, draft)
    elif key == "volumes":
        for index, mount in enumerate(node.value if isinstance(node.value, list) else []):
            _volume(mount, f"volumes.{index}", draft)
    elif key in ("repos", "files"):
        _code(key, node, draft)
    elif key == "retry":
        _retry(node, draft)
    elif key == "max_duration":
        _duration("timeout", text, key, draft)
    elif key == "stop_duration":
        _duration("grace", text, key, draft)
    else:
        draft.lost(key, "not a field that Longboat knows of dstack")


def _commands(key: str, node: YamlNode, draft: ImportDraft) -> None:
    lines = [text_of(item) or "" for item in node.value] if isinstance(node.value, list) else [text_of(node) or ""]
    script = lines[0] if len(lines) == 1 else "set -e\n" + "\n".join(lines)  # dstack stops at the first that fails
    if any(lines):
        draft.command("run" if key == "commands" else "setup", _interpolated(script, key, draft), source=key)


def _interpolated(script: str, source: str, draft: ImportDraft) -> str:
    """`${{ secrets.NAME }}` becomes a variable that has the secret, `${{ run.args }}` what follows `--` of a file."""

    def meaning(match: re.Match[str]) -> str:
        space, _, name = match[1].partition(".")
        if space == "secrets" and name.isidentifier():
            draft.put("secrets", name, {"store": name}, source=source)
            return f"${{{name}}}"
        if match[1] == "run.args" and source == "commands" and _is_word(script, match):
            return '"$@"'
        why = 'write "$@" where arguments belong' if match[1] == "run.args" else "it has no counterpart"
        draft.lost(source, f"{match[0]} was taken out: {why}")
        return ""

    return "\n".join(line.rstrip() for line in _INTERPOLATION.sub(meaning, script).split("\n"))


def _is_word(script: str, match: re.Match[str]) -> bool:
    """Whether a match stands by itself, outside of quotes: within them `"$@"` would end them."""
    before, after = script[: match.start()], script[match.end() :]
    return before[-1:].isspace() and (after[:1] or " ").isspace() and not any(before.count(each) % 2 for each in "'\"")


def _env(node: YamlNode, draft: ImportDraft) -> None:
    """A mapping, or a list of NAME=value and bare NAMEs that the submitter must have."""
    pairs: list[tuple[str, str | None]] = []
    if isinstance(node.value, list):
        for item in node.value:
            left, equals, right = (text_of(item) or "").partition("=")
            pairs.append((left, right if equals else None))
    else:
        pairs = [(name, text_of(value)) for name, value in entries(node).items()]
    for name, value in pairs:
        stored = _SECRET.fullmatch(value) if value else None
        if stored:
            draft.put("secrets", name, {"store": stored.group(1)}, source=f"env.{name}")
        elif value is not None and "${{" in value:
            draft.lost(f"env.{name}", "only a value that is one secret as a whole is translated")
        else:
            draft.variable(name, value, source=f"env.{name}")


def _volume(node: YamlNode, source: str, draft: ImportDraft) -> None:
    """`name:/path`, `/folder:/path`, or a mapping with name or instance_path, and path."""
    fields = entries(node)
    origin: str | None
    target: str | None
    if node.is_scalar:
        origin, _, target = (text_of(node) or "").rpartition(":")
    else:
        target = text_of(fields.get("path"))
        name = fields.get("name")
        first = name.value[0] if name is not None and isinstance(name.value, list) and name.value else name
        origin = text_of(first) or text_of(fields.get("instance_path"))
        if name is not None and isinstance(name.value, list) and len(name.value) > 1:
            draft.lost(source, "one volume per path; the first name was taken")
    if not origin or not target:
        draft.lost(source, "expected a name or a folder, and where it is mounted")
        return
    draft.put("volumes", target, {"path" if origin.startswith("/") else "claim": origin}, source=source)


def _code(key: str, node: YamlNode, draft: ImportDraft) -> None:
    for index, item in enumerate(node.value if isinstance(node.value, list) else [node]):
        fields = entries(item)
        local = text_of(fields.get("local_path")) or (text_of(item) or "").split(":")[0]
        remote = text_of(fields.get("url")) is not None or "://" in (text_of(item) or "") or local.startswith("git@")
        if remote or not local or (key == "repos" and "workdir" in draft.fields):
            draft.lost(f"{key}.{index}", "the code of a run is one local folder, workdir")
        elif key == "repos":
            draft.set("workdir", local, source=f"{key}.{index}")
        elif local not in (".", "./"):
            draft.add("include", local.removeprefix("./"), source=f"{key}.{index}")


def _retry(node: YamlNode, draft: ImportDraft) -> None:
    if node.is_scalar:
        if node.value is True:
            draft.set("retries", 3, source="retry")
            draft.lost("retry", "retries are counted; 3 were written")
        return
    fields = entries(node)
    events = fields.get("on_events")
    named = [text_of(item) or "" for item in events.value] if events and isinstance(events.value, list) else []
    causes: list[str] = [cause for event in named for cause in _EVENTS.get(event, [])]
    if causes:
        draft.set("retries", {"count": 3, "on": causes}, source="retry")
        draft.lost("retry", "retries are counted, not limited by time; 3 were written")
    for event in named:
        if event == "no-capacity":
            draft.lost("retry.on_events", "no-capacity needs nothing: a run that does not fit yet waits")
        elif event not in _EVENTS:
            draft.lost("retry.on_events", f"{event[:40]} has no counterpart")


def _duration(name: str, text: str | None, source: str, draft: ImportDraft) -> None:
    if text is None or text.lower() in ("off", "false", "true"):
        if name == "grace" and text is not None:
            draft.lost(source, "a stop always ends; the default grace is used")
        return
    weeks = re.fullmatch(r"([0-9]+)\s*w", text)
    draft.set(name, f"{int(weeks.group(1)) * 7}d" if weeks else text.replace(" ", ""), source=source)


def _resources(node: YamlNode, draft: ImportDraft) -> None:
    for key, value in entries(node).items():
        source = f"resources.{key}"
        text = text_of(value)
        if value.value is None:
            continue
        if key == "cpu":
            count = text if text is not None else text_of(entries(value).get("count"))
            draft.set("cpus", number_at_least((count or "").split(":")[-1]), source=source)
        elif key == "memory":
            draft.set("memory", gibibytes(_low(value)), source=source)
        elif key == "shm_size":
            draft.set("shm", gibibytes(text), source=source)
        elif key == "disk":
            size = entries(value).get("size")
            draft.set("disk", gibibytes(_low(size if size is not None else value)), source=source)
        elif key == "gpu":
            _gpu(value, draft)
        else:
            draft.lost(source, "not a field that Longboat knows of dstack")


def _low(node: YamlNode | None) -> str | None:
    """A range is a text `8..16`, or a mapping with min and max."""
    return text_of(node) or text_of(entries(node).get("min"))


def _high(node: YamlNode | None) -> str | None:
    text = text_of(node)
    return text.partition("..")[2] if text is not None else text_of(entries(node).get("max"))


def _gpu(node: YamlNode, draft: ImportDraft) -> None:
    source = "resources.gpu"
    fields: dict[str, Any] = {}
    if node.is_scalar:
        for token in (text_of(node) or "").replace(" ", "").split(":"):
            if re.fullmatch(r"[0-9]+(\.\.[0-9]*)?|\.\.[0-9]+", token):
                fields["count"] = token
            elif re.match(r"[0-9.]+[MGT]i?B", token, re.IGNORECASE):
                fields["memory"], fields["most_memory"] = token, token.partition("..")[2]
            elif token.lower() not in ("nvidia", "amd", "intel", "google", "tpu", "tenstorrent"):
                fields["type"] = token.split(",")
    else:
        given = entries(node)
        name = given.get("name")
        listed = name.value if name is not None and isinstance(name.value, list) else [name]
        memory = given.get("memory")
        fields = {"count": _low(given.get("count")), "memory": _low(memory), "most_memory": _high(memory)}
        fields["type"] = [text for text in map(text_of, listed) if text]
        for key in given:
            if key not in ("name", "count", "memory"):
                draft.lost(f"{source}.{key}", "GPUs are asked for by type, count and memory")
    _set_gpus(fields, source, draft)


def _set_gpus(fields: dict[str, Any], source: str, draft: ImportDraft) -> None:
    types = fields.get("type") or []
    if len(types) > 1:
        draft.lost(source, f"one job asks for one type of GPU; the first of {len(types)} was taken")
    low = at_least(fields.get("count"))
    count = int(low) if low and low.isdecimal() and len(low) < 10 else 1
    if count == 0:
        return
    if most := (fields.get("most_memory") or "").strip():
        draft.lost(source, f"GPUs are asked for by their least memory: at most {most[:20]} is not kept")
    asked = {"count": count, "type": types[0] if types else None, "memory": gibibytes(fields.get("memory"))}
    draft.set("gpus", {name: value for name, value in asked.items() if value is not None}, source=source)

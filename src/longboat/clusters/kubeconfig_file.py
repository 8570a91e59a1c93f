"""The user's kubeconfig file: a cluster's context is put in or taken out, everything else stays as it is.

`merge` and `remove` are texts to text; `put_context` and `drop_context` change the file: whole or not at all, with a
backup beside it, mode 0600, under the lock file that kubectl uses too. Comments are lost, as with kubectl. Scalars are
kept as they are written: a YAML reader and a writer that disagree on `123_456` would change somebody's token.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from longboat.core.errors import EngineError, LongboatError, NotFound, UsageError
from longboat.engines.shared.files import disk, write_bytes
from longboat.kubeapi.errors import KubeconfigError
from longboat.kubeapi.kubeconfig import files_of

MARK = "longboat.dev/cluster"
"""An extension of a context, as the format has them: this entry is ours to replace and to remove."""

LOCK_S = 5.0
"""kubectl holds the lock for a moment; one that stays was left behind by a program that was killed."""

_LISTS = {"clusters": "cluster", "users": "user", "contexts": "context"}

Entry = dict[str, Any]


def merge(existing: str, added: str, name: str, *, is_current: bool = False) -> str:
    """Add the current context of `added` to the kubeconfig `existing` as `name`, with entries NAME and NAME-admin.

    The current context is kept unless there is none, or `is_current`. Raises UsageError where the name is taken.
    """
    try:
        extra = _Document(added)
    except KubeconfigError as error:
        raise UsageError(f"the cluster's kubeconfig: {error.message}", hint=error.hint) from None
    file = _Document(existing)
    chosen = extra.text("current-context")
    context = extra.entry("contexts", chosen)
    if context is None:
        raise UsageError("the cluster's kubeconfig has no current context")
    names = _names(name)
    bodies: dict[str, Any] = {"contexts": context}
    for plural in ("clusters", "users"):
        bodies[plural] = extra.entry(plural, extra.field(context, _LISTS[plural]))
        if bodies[plural] is None:
            raise UsageError(f"the cluster's kubeconfig has no entry in {plural} for its context")
    _refuse_others(file, extra, names, bodies["clusters"])
    fields = {"cluster": names["clusters"], "user": names["users"]}
    if namespace := extra.field(context, "namespace"):
        fields["namespace"] = namespace
    bodies["contexts"] = file.node({**fields, "extensions": [{"name": MARK, "extension": {"version": "v1"}}]})
    for plural, entry_name in names.items():
        file.put(plural, entry_name, bodies[plural])
    if is_current or not file.text("current-context"):
        file.set("current-context", name)
    return file.dump()


def _names(name: str) -> dict[str, str]:
    return {"clusters": name, "users": f"{name}-admin", "contexts": name}


def _refuse_others(file: _Document, extra: _Document, names: Mapping[str, str], cluster: Any) -> None:
    """Refuse to overwrite entries of our names that neither carry our mark nor are of the same cluster."""
    context = file.entry("contexts", names["contexts"])
    own = file.field(context, "cluster") if context else ""
    is_same = context is not None and _identity(file, own) == _fields(extra, cluster)
    _check_names(file, names, is_same=is_same)


def _check_names(file: _Document, names: Mapping[str, str], *, is_same: bool) -> None:
    """`is_same`: the context that has our name is of this very cluster, whoever made it."""
    context = file.entry("contexts", names["contexts"])
    own = {plural: file.field(context, _LISTS[plural]) for plural in ("clusters", "users")} if context else {}
    is_ours = is_same or (context is not None and file.is_marked(context))
    for plural, entry_name in names.items():
        if file.entry(plural, entry_name) is None:
            continue
        is_referred = plural == "contexts" or own.get(plural) == entry_name
        if not (is_referred and is_ours):
            raise UsageError(
                f"the kubeconfig has an entry {entry_name} in {plural} that Longboat did not make",
                hint="give the cluster another name, or rename that entry: kubectl config rename-context",
            )


def _identity(file: _Document, cluster: str) -> tuple[str, ...] | None:
    entry = file.entry("clusters", cluster)
    return None if entry is None else _fields(file, entry)


def _fields(file: _Document, cluster: Any) -> tuple[str, ...]:
    return tuple(file.field(cluster, key) for key in ("server", "certificate-authority-data"))


def remove(existing: str, name: str) -> str:
    """Remove the context `name` and entries that only it uses. Raises NotFound, or UsageError if it is not ours."""
    file = _Document(existing)
    context = file.entry("contexts", name)
    if context is None:
        raise NotFound(f"no context {name} in the kubeconfig")
    if not file.is_marked(context):
        hint = f"kubectl config delete-context {name}"
        raise UsageError(f"the context {name} was not made by Longboat", hint=hint)
    used = {plural: file.field(context, _LISTS[plural]) for plural in ("clusters", "users")}
    file.drop("contexts", name)
    for plural, entry in used.items():
        if all(file.field(body, _LISTS[plural]) != entry for _, body in file.entries("contexts")):
            file.drop(plural, entry)
    if file.text("current-context") == name:
        file.set("current-context", "")
    return file.dump()


class _Document:
    """A kubeconfig as YAML nodes: untouched parts are written as they were."""

    def __init__(self, text: str) -> None:
        import yaml

        try:
            root = yaml.compose(text, yaml.SafeLoader)
        except yaml.YAMLError as error:
            # The problem and its line; the text itself may hold a token.
            mark = getattr(error, "problem_mark", None)
            raise KubeconfigError(f"line {mark.line + 1 if mark else 1}: not YAML") from None
        if root is None:
            root = self.node({"apiVersion": "v1", "kind": "Config"})
        if not isinstance(root, yaml.MappingNode):
            raise KubeconfigError("not a kubeconfig", hint="a kubeconfig says `kind: Config`")
        self.root = root
        if self.text("kind") not in ("", "Config"):
            raise KubeconfigError("not a kubeconfig", hint="a kubeconfig says `kind: Config`")
        for plural in _LISTS:
            listed = self.child(root, plural)
            items = listed.value if isinstance(listed, yaml.SequenceNode) else None if self.text(plural) else ()
            if items is None or isinstance(listed, yaml.MappingNode):
                raise KubeconfigError(f"{plural}: not a list")
            if not all(isinstance(item, yaml.MappingNode) for item in items):
                raise KubeconfigError(f"{plural}: an entry has no `name` and `{_LISTS[plural]}`")

    @staticmethod
    def node(value: Any) -> Any:
        import yaml

        return yaml.representer.SafeRepresenter().represent_data(value)

    def child(self, mapping: Any, key: str) -> Any:
        pairs = mapping.value if isinstance(getattr(mapping, "value", None), list) else ()
        return next((pair[1] for pair in pairs if isinstance(pair, tuple) and pair[0].value == key), None)

    def field(self, mapping: Any, key: str) -> str:
        """The text of a scalar field; empty where it is missing."""
        value = getattr(self.child(mapping, key), "value", "")
        return value if isinstance(value, str) and value not in ("~", "null") else ""

    def text(self, key: str) -> str:
        return self.field(self.root, key)

    def set(self, key: str, value: str) -> None:
        self._replace(self.root, key, self.node(value))

    def _replace(self, mapping: Any, key: str, node: Any) -> None:
        kept = [pair for pair in mapping.value if pair[0].value != key]
        mapping.value = [*kept, (self.node(key), node)]

    def entries(self, plural: str) -> Iterator[tuple[str, Any]]:
        listed = self.child(self.root, plural)
        for item in getattr(listed, "value", None) or ():
            yield self.field(item, "name"), self.child(item, _LISTS[plural])

    def entry(self, plural: str, name: str) -> Any:
        return next((body for entry, body in self.entries(plural) if name and entry == name), None)

    def put(self, plural: str, name: str, body: Any) -> None:
        """Replace the entry of this name, or append it."""
        item = self.node({"name": name})
        item.value.append((self.node(_LISTS[plural]), body))
        listed = self.child(self.root, plural)
        if not isinstance(getattr(listed, "value", None), list):
            listed = self.node([])
            listed.flow_style = False
            self._replace(self.root, plural, listed)
        at = next((index for index, each in enumerate(listed.value) if self.field(each, "name") == name), None)
        if at is None:
            listed.value.append(item)
        else:
            listed.value[at] = item

    def drop(self, plural: str, name: str) -> None:
        listed = self.child(self.root, plural)
        if listed is not None:
            listed.value = [each for each in listed.value if self.field(each, "name") != name]

    def is_marked(self, context: Any) -> bool:
        extensions = getattr(self.child(context, "extensions"), "value", None) or ()
        return any(self.field(each, "name") == MARK for each in extensions)

    def dump(self) -> str:
        import yaml

        return str(yaml.serialize(self.root, Dumper=yaml.SafeDumper, allow_unicode=True))


def put_context(added: str, name: str, environment: Mapping[str, str], *, is_current: bool = False) -> Path | None:
    """`merge` into the user's kubeconfig; returns its path, None: it was up to date."""
    return _change(environment, lambda existing: merge(existing, added, name, is_current=is_current))


def check_name(name: str, environment: Mapping[str, str]) -> None:
    """Raises UsageError where `put_context` would find the name of a new cluster taken, and KubeconfigError where it
    could not read the file.
    """
    path = files_of(environment)[0]
    with disk(f"read {path}", is_home=False):
        before = path.read_bytes() if path.exists() else b""
    _check_names(_read(path, before), _names(name), is_same=False)


def _read(path: Path, data: bytes) -> _Document:
    try:
        return _Document(data.decode())
    except UnicodeDecodeError:
        raise KubeconfigError(f"{path}: not UTF-8") from None
    except KubeconfigError as error:
        raise KubeconfigError(f"{path}: {error.message}", hint=error.hint) from None


def drop_context(name: str, environment: Mapping[str, str]) -> Path | None:
    """`remove` from the user's kubeconfig; returns its path, None: it had nothing of ours."""

    def without(existing: str) -> str:
        try:
            return remove(existing, name)
        except NotFound:
            return existing

    return _change(environment, without)


def leave_context(name: str, environment: Mapping[str, str], say: Callable[[str], None]) -> None:
    """`drop_context` at the end of a `down`: whatever keeps it there is said, and does not hold up what is left to do.

    Other tools (az, aws, gcloud) write contexts of their own under the same names.
    """
    try:
        drop_context(name, environment)
    except LongboatError as error:
        say(f"warning: the context {name} stays in the kubeconfig: {error.message}")
        if error.hint:
            say(f"hint: {error.hint}")


def backup_of(path: Path) -> Path:
    """The newest backup: `.bak`, else the highest of `.bak.1`, `.bak.2`, ..."""
    first = path.with_name(f"{path.name}.longboat.bak")
    numbers = [int(other.suffix[1:]) for other in path.parent.glob(f"{first.name}.*") if other.suffix[1:].isdecimal()]
    return first.with_name(f"{first.name}.{max(numbers)}") if numbers else first


def _keep_backup(path: Path, before: bytes, owner: os.stat_result | None) -> None:
    """Write a backup under a new name, unless the newest differs from the file only in our own entries."""
    newest = backup_of(path)
    if newest.exists():
        with contextlib.suppress(OSError, UnicodeDecodeError, KubeconfigError):
            if _of_others(newest.read_text(encoding="utf-8")) == _of_others(before.decode()):
                return
        number = newest.suffix[1:]
        first = newest.with_suffix("") if number.isdecimal() else newest
        newest = first.with_name(f"{first.name}.{int(number) + 1 if number.isdecimal() else 1}")
    _write(newest, before, owner)


def _of_others(text: str) -> dict[str, Any]:
    """The content of a kubeconfig without the contexts made by Longboat and the current context."""
    file = _Document(text)
    for name in [name for name, body in file.entries("contexts") if file.is_marked(body)]:
        text = remove(text, name)
    meaning = _meaning(text.encode())
    meaning.pop("current-context", None)
    return meaning


def _change(environment: Mapping[str, str], change: Callable[[str], str]) -> Path | None:
    path = Path(os.path.realpath(files_of(environment)[0]))  # a link stays a link
    with disk(f"write {path}", is_home=False):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _lock(path):
            before = path.read_bytes() if path.exists() else None
            try:
                after = change((before or b"").decode()).encode()
            except UnicodeDecodeError:
                raise KubeconfigError(f"{path}: not UTF-8") from None
            except KubeconfigError as error:
                raise KubeconfigError(f"{path}: {error.message}", hint=error.hint) from None
            if not after or (before is not None and _meaning(after) == _meaning(before)):
                return None
            owner = path.stat() if before is not None else None
            if before is not None:
                _keep_backup(path, before, owner)
            _write(path, after, owner)
    return path


def _meaning(text: bytes) -> dict[str, Any]:
    """The content of a kubeconfig without its order and style: kubectl sorts what it writes."""
    import yaml

    content: dict[str, Any] = yaml.load(text, yaml.BaseLoader) or {}
    for plural in _LISTS:
        content[plural] = {entry.get("name"): entry for entry in content.get(plural) or ()}
    return content


def _write(path: Path, data: bytes, owner: os.stat_result | None) -> None:
    write_bytes(path, data, is_durable=True)
    if owner is not None and os.geteuid() == 0:
        os.chown(path, owner.st_uid, owner.st_gid)  # root who works for somebody leaves him his file


@contextlib.contextmanager
def _lock(path: Path) -> Iterator[None]:
    lock = f"{path}.lock"
    deadline = time.monotonic() + LOCK_S
    while True:
        try:
            os.close(os.open(lock, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
            break
        except FileExistsError:
            if time.monotonic() > deadline:
                hint = f"if no kubectl is at work, remove {lock}"
                raise EngineError(f"another program is writing {path}", hint=hint) from None
            time.sleep(0.05)
    try:
        yield
    finally:
        os.unlink(lock)

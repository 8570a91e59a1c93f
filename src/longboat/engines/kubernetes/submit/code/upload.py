"""Carries the code of a run and the launcher into a namespace: in shared Secrets; large code in an object store, or in
the run's storage.

    upload = plan_upload(client, store, code, has_storage=...)   what is there, what must travel; changes nothing
    stayed = send(client, store, upload, record, owner)          afterwards pods of the run can be made
    stayed()                                                     afterwards they will start

Secrets are named after what they hold and are shared by runs. Every run that uses one is an owner of it, so the cluster
removes it with the last of them; one that was removed just when we wanted it is made again.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any

import msgspec

from longboat.bundles.manifests import CodeSnapshot
from longboat.bundles.store import BundleStore
from longboat.core.errors import BundleError, EngineError, Refused
from longboat.core.jobs import Value
from longboat.engines.kubernetes import names
from longboat.engines.kubernetes.manifests.gang_file import CodeManifest, code_manifest
from longboat.engines.kubernetes.records import CodeStore, Record
from longboat.engines.kubernetes.submit import shared_secrets
from longboat.engines.kubernetes.submit.code import packs
from longboat.engines.kubernetes.submit.code.packs import NewPack
from longboat.engines.shared.containers.launcher_file import launcher_bytes
from longboat.kubeapi.client import MANAGER, Client
from longboat.kubeapi.errors import AlreadyExists, Forbidden, ObjectNotFound
from longboat.kubeapi.kinds import SECRET

Object = dict[str, Any]

LAUNCHER_PREFIX = "longboat-launcher-"
SHARED = ("code", "launcher")
"""Kinds of Secrets that runs share."""
INDEX = f"{names.DOMAIN}/index"
STORED = "code/0"
"""Where the pack of code too large for Secrets is, in the run's folder of its storage."""

PATIENCE_S = 30.0  # the garbage collector of the cluster lags by seconds
_PAUSE_S = 0.1  # between two looks
_AT_ONCE = 4  # Secrets of up to 1 MiB each: more would only queue in the API server
_METADATA = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
_METADATA_LIST = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json"


class Upload(Value, frozen=True):
    """The packs that a run uses, and those that must be uploaded first."""

    launcher: str  # Secret
    packs: tuple[str, ...] = ()  # Secrets, in order
    stored: tuple[str, ...] = ()  # files in the run's folder of its storage
    code_store: CodeStore | None = None  # where the packs are instead, as objects
    objects: dict[str, tuple[str, ...]] = {}  # name of such an object -> contents that it holds
    manifest: CodeManifest | None = None  # None: no code travels
    new: tuple[NewPack, ...] = ()
    needed: dict[str, tuple[str, ...]] = {}  # pack that is used again -> objects that are needed of it
    size: int = 0  # bytes that travel, compressed, the launcher left out


def plan_upload(
    client: Client | None,
    store: BundleStore,
    code: CodeSnapshot | None,
    *,
    has_storage: bool,
    code_store: CodeStore | None = None,
    there: Sequence[Object] | None = None,
) -> Upload:
    """Plan of what to upload; without a client, all of it. Raises TooLarge (a refusal) for code that fits nowhere.

    Code that is too large for Secrets goes to the object store, else to the run's storage. `there`: what
    `found_secrets` found a moment ago; what vanishes meanwhile is made again by `send`.
    """
    if there is None:
        there = found_secrets(client, *SHARED) if client is not None else []
    launcher = shared_secrets.copy_for(launcher_name(), there)
    if code is None:
        return Upload(launcher=launcher)
    existing = [pack for body in shared_secrets.with_room(there).values() if (pack := _pack_of(body)) is not None]
    try:
        plan = packs.plan_packs(code.objects, existing, functools.partial(_read, store))
    except packs.TooLarge:
        if code_store is not None:
            return _planned_objects(client, code, code_store, launcher)
        if not has_storage:
            raise
        return Upload(launcher=launcher, stored=(STORED,), manifest=code_manifest(code, 1), size=code.size)
    copies = {pack.name: shared_secrets.copy_for(pack.name, there) for pack in plan.new}
    return Upload(
        launcher=launcher,
        packs=tuple(copies.get(name, name) for name in plan.names),
        manifest=code_manifest(code, len(plan.names)),
        new=tuple(msgspec.structs.replace(pack, name=copies[pack.name]) for pack in plan.new),
        needed=plan.needed,
        size=sum(len(pack.data) for pack in plan.new),
    )


def _planned_objects(client: Client | None, code: CodeSnapshot, where: CodeStore, launcher: str) -> Upload:
    from longboat.engines.kubernetes.submit.code import objects as codeobjects

    if client is not None and where.secret is not None:
        _check_secret(client, where.secret)
    objects = codeobjects.plan(code.objects)
    manifest = code_manifest(code, 0, url=codeobjects.folder_of(where.url), objects=tuple(objects))
    return Upload(launcher=launcher, code_store=where, objects=objects, manifest=manifest, size=code.size)


def _check_secret(client: Client, name: str) -> None:
    """A pod that mounts a Secret which is not there waits for it without a word."""
    try:
        client.request("GET", client.path(SECRET, None, name), accept=f"{_METADATA},application/json")
    except ObjectNotFound:
        raise Refused(
            f"there is no Secret {name} in namespace {client.namespace}, with which pods read the code",
            hint=f"kubectl create secret generic {name} --namespace {client.namespace} --from-env-file=FILE, or name"
            " another with `longboat config set kubernetes.storage.secret NAME`",
        ) from None
    except Forbidden:
        pass


def send(
    client: Client,
    store: BundleStore,
    upload: Upload,
    record: Record,
    owner: Object,
    environment: Mapping[str, str] | None = None,
) -> Callable[[], None]:
    """Make everything that the run uses be there, owned by its record. The answer makes sure that it stayed.

    The cluster's collector may have decided to remove a Secret just before we were an owner of it. `environment` has
    the submitter's credentials of the object store.
    """
    if upload.code_store is not None:
        from longboat.engines.kubernetes.submit.code.objects import send_objects

        given = os.environ if environment is None else environment
        send_objects(upload.code_store.url, upload.objects, given, functools.partial(write_pack, store=store))
    if upload.stored:
        _send_to_storage(client, store, upload, record)
    secrets = [upload.launcher, *upload.packs]
    new = {pack.name: pack for pack in upload.new}
    sending = _Sending(client, store, upload, owner, new)
    uids = sending.have_all(secrets)

    def stayed() -> None:
        deadline = time.monotonic() + PATIENCE_S
        there = uids
        while lost := _vanished(client, there):
            if time.monotonic() > deadline:
                raise EngineError(f"the cluster keeps removing {', '.join(lost)}", hint="submit the job again")
            there = sending.have_all(lost)

    return stayed


class _Sending:
    """One run on its way into the cluster."""

    def __init__(
        self, client: Client, store: BundleStore, upload: Upload, owner: Object, new: dict[str, NewPack]
    ) -> None:
        self.client = client
        self.store = store
        self.upload = upload
        self.owner = owner
        self.new = new

    def have_all(self, names: Sequence[str]) -> dict[str, str | None]:
        with ThreadPoolExecutor(max_workers=_AT_ONCE) as pool:
            return dict(zip(names, pool.map(self.have, names)))

    def have(self, name: str) -> str | None:
        """The uid of the Secret, owned by our run too; None when it was being removed meanwhile."""
        if name in self.new:
            uid = self._create(name)
            if uid is not None:
                return uid
        return self._adopt(name) or self._create(name) or self._adopt(name)

    def _adopt(self, name: str) -> str | None:
        """Add our record to the owners. A merge by uid: others may add theirs at the same time."""
        body = {"metadata": {"ownerReferences": [self.owner]}}
        path = self.client.path(SECRET, None, name)
        query = {"fieldManager": MANAGER}
        try:
            answer = self.client.request(
                "PATCH",
                path,
                query=query,
                body=body,
                content_type="application/strategic-merge-patch+json",
                accept=f"{_METADATA},application/json",
                may_repeat=True,
            )
        except ObjectNotFound:
            return None
        metadata = msgspec.json.decode(answer)["metadata"]
        if metadata.get("deletionTimestamp"):
            time.sleep(_PAUSE_S)
            return None
        pack = _pack_of({"metadata": metadata})
        if pack is not None and not self._serves(pack):
            raise EngineError(f"{name} holds other code than it did a moment ago", hint="submit the job again")
        return str(metadata["uid"])

    def _serves(self, pack: packs.Pack) -> bool:
        """One that vanished may have been made again by somebody who needed less of it."""
        needed = self.upload.needed.get(pack.name, ())
        return pack.split is not None or packs.holds(pack, needed)

    def _create(self, name: str) -> str | None:
        """None when it is there already."""
        body = self._body(name)
        body["metadata"]["ownerReferences"] = [self.owner]
        query = {"fieldManager": MANAGER, "fieldValidation": "Strict"}
        try:
            answer = self.client.request(
                "POST",
                self.client.path(SECRET),
                query=query,
                body=body,
                accept=f"{_METADATA},application/json",
                may_repeat=True,
            )
        except AlreadyExists:
            return None
        return str(msgspec.json.decode(answer)["metadata"]["uid"])

    def _body(self, name: str) -> Object:
        if name == self.upload.launcher:
            return _secret(name, "launcher", {"launcher.pyz": launcher_bytes()}, {})
        pack = self.new.get(name)
        if pack is None:
            pack = packs.rebuild(
                shared_secrets.base_of(name), self.upload.needed[name], functools.partial(_read, self.store)
            )
        if pack is None:
            raise EngineError(f"{name} was removed just now", hint="submit the job again")
        return _secret(name, "code", {"pack": pack.data}, {INDEX: pack.index})


def upload_objects(upload: Upload, namespace: str) -> list[Object]:
    """The Secrets of an upload that was planned without a client: all that the run uses, owned by nobody."""
    launcher = _secret(upload.launcher, "launcher", {"launcher.pyz": launcher_bytes()}, {})
    code = [_secret(pack.name, "code", {"pack": pack.data}, {INDEX: pack.index}) for pack in upload.new]
    return [{**body, "metadata": {**body["metadata"], "namespace": namespace}} for body in (launcher, *code)]


def found_secrets(client: Client, *kinds: str) -> list[Object]:
    """Metadata of our shared Secrets of these kinds that are not being removed; none where listing is not allowed."""
    bodies: list[Object] = []
    query = {"labelSelector": f"{names.MANAGED_BY}={MANAGER},{names.KIND} in ({','.join(kinds)})", "limit": "500"}
    more = ""
    try:
        while True:
            asked = {**query, "continue": more}
            answer = client.request("GET", client.path(SECRET), query=asked, accept=_METADATA_LIST)
            page = msgspec.json.decode(answer)
            bodies += page.get("items") or []
            more = page["metadata"].get("continue") or ""
            if not more:
                return [body for body in bodies if not body["metadata"].get("deletionTimestamp")]
    except Forbidden:
        return []


def _vanished(client: Client, uids: dict[str, str | None]) -> list[str]:
    """Which of them are not there as they were. Read one by one: a list after a write waits for the server's cache."""

    def is_lost(name: str) -> bool:
        if uids[name] is None:
            return True
        try:
            answer = client.request("GET", client.path(SECRET, None, name), accept=f"{_METADATA},application/json")
        except ObjectNotFound:
            return True
        except Forbidden:
            return False
        metadata = msgspec.json.decode(answer)["metadata"]
        return bool(metadata["uid"] != uids[name] or metadata.get("deletionTimestamp"))

    with ThreadPoolExecutor(max_workers=_AT_ONCE) as pool:
        return [name for name, lost in zip(uids, pool.map(is_lost, uids)) if lost]


def _pack_of(body: Mapping[str, Any]) -> packs.Pack | None:
    metadata = body["metadata"]
    return packs.index_of(metadata["name"], (metadata.get("annotations") or {}).get(INDEX, ""))


def _secret(name: str, kind: str, data: dict[str, bytes], annotations: dict[str, str]) -> Object:
    metadata: Object = {"name": name, "labels": {names.MANAGED_BY: MANAGER, names.KIND: kind}}
    if annotations:
        metadata["annotations"] = annotations
    encoded = {key: base64.b64encode(value).decode() for key, value in data.items()}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": metadata,
        "type": "Opaque",
        "immutable": True,
        "data": encoded,
    }


@functools.lru_cache(maxsize=1)
def launcher_name() -> str:
    return LAUNCHER_PREFIX + hashlib.sha256(launcher_bytes()).hexdigest()[:16]


def _read(store: BundleStore, hash: str) -> bytes:
    try:
        data = Path(store.object_path(hash)).read_bytes()
    except OSError:
        data = b""
    if hashlib.sha256(data).hexdigest() != hash:
        raise BundleError(f"the stored content {hash[:12]} is missing or damaged", hint="submit the job again")
    return data


def _send_to_storage(client: Client, store: BundleStore, upload: Upload, record: Record) -> None:
    from longboat.engines.kubernetes.exec.helper_pod import HelperPod
    from longboat.engines.kubernetes.manifests.volumes import STORAGE

    assert record.storage is not None and upload.manifest is not None
    hashes = dict.fromkeys(entry[2] for entry in upload.manifest.entries if entry[1] == "file")
    with tempfile.TemporaryDirectory(prefix="longboat-") as folder:
        pack = Path(folder, "pack")
        with open(pack, "wb") as file:
            write_pack(file, list(hashes), store)
        with HelperPod.of_run(client, record, is_own=True) as helper:
            helper.copy_in(pack, f"{STORAGE}/{record.storage.folder}/{STORED}")


def write_pack(file: IO[bytes], hashes: Sequence[str], store: BundleStore) -> None:
    """One pack of any size, written as it is made."""
    import gzip

    with gzip.GzipFile(fileobj=file, mode="wb", filename="", mtime=0, compresslevel=4) as packed:
        for hash in hashes:
            packed.write(packs.member(hash, _read(store, hash)))
        packed.write(packs.END)

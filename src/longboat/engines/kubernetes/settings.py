"""Settings of the user: `config.yaml` in LONGBOAT_HOME (default ~/.longboat), read strictly, written key by key.

    engine: kubernetes                # what a command means that names no engine
    local: {containers: podman}       # for this machine
    kubernetes:                       # for every cluster
      context: lab
      images: {torch: registry.example.org/torch:2.9}
      storage: {claim: training}
    contexts:                         # for one context of the kubeconfig, over the above
      lab: {namespace: vision, queue: research}
    local:                            # what stands for volumes of a cluster on this machine
      claims: {datasets: /home/me/data}

It holds no secrets. What is not set is found out from the cluster, or has the default said in `FIELDS`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from longboat.core.errors import EngineError, UsageError
from longboat.core.jobs import FRAMEWORKS, Job, Value
from longboat.engines.kubernetes.records import CodeStore, Storage
from longboat.engines.shared.home import Home
from longboat.specs.fields import rules
from longboat.specs.fields.composites import Field, ListOf, MapOf, Shape
from longboat.specs.fields.scalars import ChoiceOf, FieldPath, Flag, Text, duration
from longboat.specs.yaml.yaml_tree import Mistakes, SourcePosition, YamlNode, plain

FILE = "config.yaml"
DEFAULT_GATE_S = 300.0
DEFAULT_NODE_LOST_S = 60.0
DEFAULT_LOG_WAIT_S = 120.0
"""At 10 MB/s, a usual line to a cluster, a reader catches up with 1.2 GB meanwhile; longer than that, idle GPUs cost
more than the last lines of a log that nobody stored are worth."""
DEFAULT_IMAGE = "python:3.12-slim"
FRAMEWORK_IMAGES = {"torch": "pytorch/pytorch", "tensorflow": "tensorflow/tensorflow"}

EngineName = Literal["local", "kubernetes"]


class ClusterSettings(Value, frozen=True):
    """What was set for a cluster."""

    context: str | None = None  # of the kubeconfig; only for every cluster
    namespace: str | None = None
    image: str | None = None
    images: dict[str, str] = {}  # framework -> image
    storage: Storage | None = None
    code_store: CodeStore | None = None
    queue: str | None = None
    priority_class: str | None = None
    topology: dict[str, str] = {}
    gpu_resource: str | None = None
    allow_host_paths: bool = False
    gate_s: float = DEFAULT_GATE_S
    node_lost: float = DEFAULT_NODE_LOST_S
    keep: float | None = None  # seconds
    log_wait_s: float = DEFAULT_LOG_WAIT_S
    pull_secrets: tuple[str, ...] = ()
    service_account: str | None = None
    network_policy: bool = True
    pod: dict[str, Any] = {}  # laid over every pod's template


class StorageChoice(Value, frozen=True):
    """The setting `storage`: what is mounted, and where large code goes."""

    mounted: Storage | None = None
    code: CodeStore | None = None


class Settings(Value, frozen=True):
    engine: EngineName = "local"
    kubernetes: dict[str, Any] = {}  # fields that were set
    contexts: dict[str, dict[str, Any]] = {}
    local: dict[str, Any] = {}  # fields that were set: claims and mounts -> folders of this machine, ...

    def cluster(self, context: str | None = None) -> ClusterSettings:
        """What holds for this context: its own settings, over those for every cluster."""
        own = self.contexts.get(context or "", {})
        images = {**self.kubernetes.get("images", {}), **own.get("images", {})}
        merged = {**self.kubernetes, **own, "images": images}
        chosen = merged.pop("storage", None) or StorageChoice()
        return ClusterSettings(**merged, storage=chosen.mounted, code_store=chosen.code)


def path_of(environment: Mapping[str, str]) -> Path:
    return Home(environment=environment).root / FILE


def read_settings(environment: Mapping[str, str]) -> Settings:
    """What was set; defaults when there is no file. Raises JobError with every mistake and its line."""
    return _settings(_tree(path_of(environment)))


def set_values(environment: Mapping[str, str]) -> dict[str, Any]:
    """What was set, as it was written; raises as `read_settings` does."""
    root = _tree(path_of(environment))
    _settings(root)
    values: dict[str, Any] = plain(root)
    return values


def write_setting(environment: Mapping[str, str], key: str, text: str | None) -> Settings:
    """Set one key, `kubernetes.storage.claim`, to a value as in YAML; None removes it. A mistake changes nothing."""
    from longboat.engines.shared.files import locked, make_folder, write_bytes
    from longboat.specs.dump import to_yaml

    path = path_of(environment)
    make_folder(path.parent, is_durable=True)
    with locked(path.parent / f".{FILE}.lock"):
        root = _changed(_tree(path), key, text)
        settings = _settings(root)
        shown = plain(root)
        assert isinstance(shown, dict)
        write_bytes(path, to_yaml(shown).encode(), is_durable=True)
    return settings


def images_of(job: Job, settings: ClusterSettings) -> tuple[dict[str, str], list[str]]:
    """The image of every role, and what the user should know about those that were chosen for him."""
    chosen = settings.images.get(job.framework) or settings.image
    images: dict[str, str] = {}
    notices: list[str] = []
    for role in job.roles:
        if role.image or chosen:
            images[role.name] = role.image or str(chosen)
            continue
        images[role.name] = FRAMEWORK_IMAGES.get(job.framework, DEFAULT_IMAGE)
        notices.append(
            f"role {role.name}: no image is given, it runs in {images[role.name]}; name one with `image`,"
            f" or once with `longboat config set kubernetes.images.{job.framework} IMAGE`"
        )
    return images, notices


def _storage(values: dict[str, Any], node: YamlNode, at: FieldPath) -> StorageChoice | None:
    mounted = {name: values[name] for name in ("claim", "nfs", "path") if name in values}
    if len(mounted) > 1 or not (mounted or "url" in values):
        given = " and ".join(mounted or values) or "none"
        at.problem(node, f"found {given}, expected exactly one of claim, nfs, path, or a url, or both")
        return None
    if "secret" in values and "url" not in values:
        at.problem(node, "found secret, which is for the url, and no url")
        return None
    code = CodeStore(url=values["url"], secret=values.get("secret")) if "url" in values else None
    return StorageChoice(mounted=Storage(**mounted) if mounted else None, code=code)


def _object_url(url: str) -> str | None:
    from longboat.core.errors import Refused
    from longboat.storage.urls import object_url

    try:
        object_url(url)
    except Refused as error:
        return f"{error.message}; {error.hint}" if error.hint else error.message
    return None


def _absolute(path: str) -> str | None:
    if not path.startswith("/") or ".." in path.split("/"):
        return "expected an absolute path of the nodes, without .."
    return None


def _one_topology(values: dict[str, Any], node: YamlNode, at: FieldPath) -> dict[str, str]:
    if len(values) > 1:
        at.problem(node, "found required and preferred, expected one of them")
    return values


class PodOverlay(Value, frozen=True):
    """A part of a pod template in Kubernetes' own words, which the API server checks."""

    expected: str = "a mapping with metadata and spec, as in a pod template"

    def read(self, node: YamlNode, at: FieldPath) -> dict[str, Any] | None:
        strange = (
            [key for key in node.value if key not in ("metadata", "spec")] if isinstance(node.value, dict) else [""]
        )
        if strange:
            at.wrong(node, self.expected)
            return None
        value: dict[str, Any] = plain(node)
        return value

    def schema(self) -> dict[str, Any]:
        part = {"type": "object"}
        return {"type": "object", "properties": {"metadata": part, "spec": part}, "additionalProperties": False}


def _text(expected: str, pattern: str | None = None, **more: Any) -> Text:
    return Text(expected=expected, pattern=pattern, **more)


_NAME = _text(f"a name: {rules.SUBDOMAIN_EXPECTED}", rules.SUBDOMAIN)
_IMAGE = _text(rules.IMAGE_EXPECTED, rules.IMAGE)
_LABEL = _text(rules.LABEL_KEY_EXPECTED, rules.LABEL_KEY)

STORAGE = Shape(
    fields=(
        Field(name="claim", kind=_NAME, doc="A PersistentVolumeClaim of the namespace."),
        Field(name="nfs", kind=_text("server:/path", rules.NFS), doc="An NFS export."),
        Field(name="path", kind=_text("a folder of the nodes", check=_absolute), doc="A folder that all nodes have."),
        Field(
            name="url",
            kind=_text("s3://BUCKET/NAME, gs://... or az://...", rules.STORE_URL, check=_object_url),
            doc="An object store for code that is too large for Secrets.",
        ),
        Field(name="secret", kind=_NAME, doc="A Secret whose keys are variables for reading the url in pods."),
    ),
    build=_storage,
)

TOPOLOGY = Shape(
    fields=(
        Field(name="required", kind=_LABEL, doc="All pods on nodes with the same value of this label, or none."),
        Field(name="preferred", kind=_LABEL, doc="The same, if it can be."),
    ),
    build=_one_topology,
)

FIELDS = (
    Field(name="namespace", kind=_NAME, doc="Namespace of the runs.", default="the context's"),
    Field(name="image", kind=_IMAGE, doc="Image of jobs that name none."),
    Field(
        name="images",
        kind=MapOf(item=_IMAGE, what="frameworks and images", key="|".join(FRAMEWORKS), key_expected="a framework"),
        doc="The same for one framework.",
        default="{}",
    ),
    Field(name="storage", kind=STORAGE, doc="Where runs keep checkpoints, artifacts and logs."),
    Field(name="queue", kind=_NAME, doc="Kueue's LocalQueue of jobs that name none."),
    Field(name="priority_class", kind=_NAME, doc="Kueue's WorkloadPriorityClass."),
    Field(name="topology", kind=TOPOLOGY, doc="Kueue: how close the pods of a run must be."),
    Field(name="gpu_resource", kind=_LABEL, doc="The GPU resource to ask for.", default="what most nodes offer"),
    Field(name="allow_host_paths", kind=Flag(), doc="Jobs may mount folders of the nodes.", default="false"),
    Field(
        name="gate_s",
        kind=duration(10.0, 86400.0),
        doc="How long a gang that was admitted may take until all its pods are ready.",
        default="300",
    ),
    Field(
        name="node_lost",
        kind=duration(10.0, 3600.0),
        doc="A node that is silent for so long is lost, and the attempt with it.",
        default="60s",
    ),
    Field(
        name="keep",
        kind=duration(60.0, 10 * 365 * 86400.0),
        doc="Objects of a run are removed by the controller so long after its end; its record and its storage stay.",
        default="until `rm`",
    ),
    Field(
        name="log_wait_s",
        kind=duration(0.0, 3600.0),
        doc="How long an ended node waits for attached readers of its log that are behind.",
        default="120",
    ),
    Field(name="pull_secrets", kind=ListOf(item=_NAME, what="names"), doc="Secrets for pulling images.", default="[]"),
    Field(name="service_account", kind=_NAME, doc="Service account of the pods.", default="default"),
    Field(
        name="network_policy",
        kind=Flag(),
        doc="Each run has a NetworkPolicy: only its own pods may open connections to them.",
        default="true",
    ),
    Field(name="pod", kind=PodOverlay(), doc="Laid over every pod: metadata and spec as Kubernetes knows them."),
)

_FOLDER = _text("a folder of this machine: an absolute path, or one that begins with ~/", r"(/|~/).*")

LOCAL = Shape(
    fields=(
        Field(
            name="claims",
            kind=MapOf(
                item=_FOLDER,
                what="claims and folders",
                key=rules.SUBDOMAIN,
                key_expected=f"a claim: {rules.SUBDOMAIN_EXPECTED}",
            ),
            doc="Folders that stand for a cluster's claims.",
            default="{}",
        ),
        Field(
            name="mounts",
            kind=MapOf(
                item=_FOLDER,
                what="targets and folders",
                key=rf"/\S+|{rules.NFS}",
                key_expected="where the job mounts it, such as /mnt/data, or an NFS export server:/path",
            ),
            doc="Folders that stand for absolute targets of volumes, or for NFS exports.",
            default="{}",
        ),
        Field(
            name="containers",
            kind=ChoiceOf(options=("auto", "podman", "docker", "off")),
            doc="What runs jobs that name an image.",
            default="auto",
        ),
        Field(
            name="gpu_isolation",
            kind=ChoiceOf(options=("auto", "off", "required")),
            doc="Whether a run can open the device files of its own GPUs only.",
            default="auto",
        ),
    )
)

_CONTEXT = Field(name="context", kind=_text("a context of the kubeconfig"), doc="The cluster to use.")

CONFIG = Shape(
    fields=(
        Field(
            name="engine", kind=ChoiceOf(options=("local", "kubernetes")), doc="The default engine.", default="local"
        ),
        Field(name="kubernetes", kind=Shape(fields=(_CONTEXT, *FIELDS)), doc="For every cluster.", default="{}"),
        Field(name="local", kind=LOCAL, doc="For runs on this machine.", default="{}"),
        Field(
            name="contexts",
            kind=MapOf(
                item=Shape(fields=FIELDS),
                what="contexts and their settings",
                key=r"[^\x00-\x1f\x7f]{1,253}",
                key_expected="the name of a context",
            ),
            doc="For one context of the kubeconfig.",
            default="{}",
        ),
    )
)


def _tree(path: Path) -> YamlNode:
    from longboat.specs.yaml.yaml12 import parse_bytes

    mistakes = Mistakes()
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return YamlNode({}, SourcePosition(str(path)))
    except OSError as error:
        raise EngineError(f"cannot read {path}: {error.strerror}") from None
    node = parse_bytes(data, file=str(path), mistakes=mistakes)
    if node is not None and not isinstance(node.value, dict):
        if node.value is None:
            return YamlNode({}, SourcePosition(str(path)))
        mistakes.add(node.place, "", "found a list or a single value, expected a mapping")
    mistakes.raise_if_any()
    assert node is not None
    return node


def _settings(root: YamlNode) -> Settings:
    mistakes = Mistakes()
    values = CONFIG.read(root, FieldPath("", mistakes)) or {}
    mistakes.raise_if_any()
    return msgspec.convert(values, Settings)


def _changed(root: YamlNode, key: str, text: str | None) -> YamlNode:
    from longboat.specs.overrides import parse_value, split_path

    mistakes = Mistakes()
    place = SourcePosition(f"config {key[:80]}")
    segments = split_path(key)
    if not segments:
        raise UsageError(f"{key!r} is not the name of a setting", hint="for example kubernetes.namespace")
    value = None if text is None else parse_value(text, place, mistakes)
    mistakes.raise_if_any()
    if text is not None and (value is None or value.value is None):
        raise UsageError(f"{key}: no value is given", hint=f"`longboat config unset {key}` removes it")
    return _put(root, segments, value, place)


def _put(node: YamlNode, segments: list[str], value: YamlNode | None, place: SourcePosition) -> YamlNode:
    entries = dict(node.value) if isinstance(node.value, dict) else {}
    first, rest = segments[0], segments[1:]
    if rest:
        below = _put(entries.get(first, YamlNode({}, place)), rest, value, place)
        if below.value == {}:
            entries.pop(first, None)
        else:
            entries[first] = below
    elif value is None:
        entries.pop(first, None)
    else:
        entries[first] = value
    return node._replace(value=entries, keys={**node.keys, first: place})

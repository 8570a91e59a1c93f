"""Settings of the user: `config.yaml` in LONGBOAT_HOME (default ~/.longboat), read strictly, written key by key.

    engine: kubernetes                # what a command means that names no engine
    local: {containers: podman}       # for this machine
    kubernetes:                       # for every cluster
      context: lab
      images: {torch: registry.example.org/torch:2.9}
      storage: {claim: training}
    contexts:                         # for one context of the kubeconfig, over the above
      lab: {namespace: vision, queue: research}
    groups: {mine: [lab, aws]}        # several clusters, for --on mine
    local:                            # what stands for volumes of a cluster on this machine
      claims: {datasets: /home/me/data}

It holds no secrets. What is not set is found out from the cluster, or has the default said in `setting_fields`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from longboat.core.errors import UsageError
from longboat.core.guards.decoding import convert
from longboat.core.jobs import Job, Value
from longboat.engines.kubernetes.records import CodeStore, GpuDriver, Storage
from longboat.engines.kubernetes.setting_fields import CONFIG, GpuChoice, StorageChoice
from longboat.engines.shared.files import disk_error
from longboat.engines.shared.home import Home
from longboat.specs.fields.scalars import FieldPath
from longboat.specs.yaml.yaml_tree import Mistakes, SourcePosition, YamlNode, plain

FILE = "config.yaml"
DEFAULT_GATE_S = 300.0  # the scheduler takes seconds, a node that is still booting some minutes
DEFAULT_NODE_LOST_S = 60.0  # kubelets renew their Lease every 10 s, and are back within a minute after a restart
DEFAULT_LOG_WAIT_S = 120.0
"""At 10 MB/s, a usual line to a cluster, a reader catches up with 1.2 GB meanwhile; longer than that, idle GPUs cost
more than the last lines of a log that nobody stored are worth."""
DEFAULT_IMAGE = "python:3.12-slim"
FRAMEWORK_IMAGES = {"torch": "pytorch/pytorch", "tensorflow": "tensorflow/tensorflow"}

EngineName = Literal["local", "kubernetes"]


class ClusterSettings(Value, frozen=True):
    """Settings of a cluster."""

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
    gpu_driver: GpuDriver | None = None  # the driver of the nodes that GPU pods mount; None: the cluster brings it
    allow_host_paths: bool = False
    gate_s: float = DEFAULT_GATE_S
    node_lost: float = DEFAULT_NODE_LOST_S
    keep: float | None = None  # seconds
    log_wait_s: float = DEFAULT_LOG_WAIT_S
    pull_secrets: tuple[str, ...] = ()
    service_account: str | None = None
    network_policy: bool = True
    gpu_hour: float | None = None  # price; 0: one's own machines; None: that of the machine types
    pod: dict[str, Any] = {}  # laid over every pod's template


class Settings(Value, frozen=True):
    engine: EngineName = "local"
    kubernetes: dict[str, Any] = {}  # fields that were set
    contexts: dict[str, dict[str, Any]] = {}
    groups: dict[str, tuple[str, ...]] = {}  # names for several contexts
    currency: str = "USD"
    budgets: dict[str, dict[str, Any]] = {}  # LABEL=VALUE or user=NAME -> gpu_hours, per, hold
    notify: dict[str, Any] = {}  # read by `engines.lifecycle.notices`
    local: dict[str, Any] = {}  # fields that were set: claims and mounts -> folders of this machine, ...

    def cluster(self, context: str | None = None) -> ClusterSettings:
        """Effective settings of this context: its own over those for every cluster."""
        own = self.contexts.get(context or "", {})
        images = {**self.kubernetes.get("images", {}), **own.get("images", {})}
        merged = {**self.kubernetes, **own, "images": images}
        chosen = merged.pop("storage", None) or StorageChoice()
        driver = (merged.pop("gpu", None) or GpuChoice()).driver
        return ClusterSettings(**merged, storage=chosen.mounted, code_store=chosen.code, gpu_driver=driver)


def path_of(environment: Mapping[str, str]) -> Path:
    return Home(environment=environment).root / FILE


def read_settings(environment: Mapping[str, str]) -> Settings:
    """The settings; defaults without a file. Raises JobError with every mistake and its line."""
    return _settings(_tree(path_of(environment)))


def set_values(environment: Mapping[str, str]) -> dict[str, Any]:
    """The values that are set, as written; raises as `read_settings` does."""
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


def _tree(path: Path) -> YamlNode:
    from longboat.specs.yaml.yaml12 import parse_bytes

    mistakes = Mistakes()
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return YamlNode({}, SourcePosition(str(path)))
    except OSError as error:
        raise disk_error(error, f"read {path}") from None
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
    return convert(values, Settings)


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

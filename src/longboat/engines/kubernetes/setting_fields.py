"""The fields of config.yaml: what can be set for clusters and for this machine, and how it is checked."""

from __future__ import annotations

from typing import Any

import msgspec

from longboat.core.jobs import FRAMEWORKS, Value
from longboat.core.runs import FINAL_PHASES
from longboat.engines.kubernetes.records import CodeStore, GpuDriver, Storage
from longboat.specs.fields import rules
from longboat.specs.fields.composites import Field, ListOf, MapOf, Shape
from longboat.specs.fields.scalars import ChoiceOf, FieldPath, Flag, Text, WholeNumber, duration
from longboat.specs.yaml.yaml_tree import YamlNode, plain

DEFAULT_LIBCUDA = "/usr/lib/x86_64-linux-gnu/libcuda.so.1"


class StorageChoice(Value, frozen=True):
    """The setting `storage`: what is mounted, and where large code goes."""

    mounted: Storage | None = None
    code: CodeStore | None = None


class GpuChoice(Value, frozen=True):
    """The setting `gpu`: the driver that is mounted; None: the cluster brings it, whatever is set for all clusters."""

    driver: GpuDriver | None = None


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


def _gpu(values: dict[str, Any], node: YamlNode, at: FieldPath) -> GpuChoice | None:
    if values.get("mode") == "hostpath":
        if "driver" not in values:
            at.problem(node, "found mode hostpath and no driver, expected its folder, such as /usr/lib/nvidia-384")
            return None
        libcuda = values.get("libcuda", DEFAULT_LIBCUDA)
        return GpuChoice(driver=GpuDriver(folder=values["driver"], libcuda=None if libcuda == "none" else libcuda))
    others = [name for name in values if name != "mode"]
    if others:
        at.problem(node, f"found {' and '.join(others)}, which is for `mode: hostpath`")
        return None
    return GpuChoice()


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


def _library(path: str) -> str | None:
    return None if path == "none" else _absolute(path)


def _one_topology(values: dict[str, Any], node: YamlNode, at: FieldPath) -> dict[str, str]:
    if len(values) > 1:
        at.problem(node, "found required and preferred, expected one of them")
    return values


def _group_name(name: str) -> str | None:
    if name in ("all", "local"):
        return f'found a group called "{name}", expected another name: --on {name} has a meaning of its own'
    return None


def _groups(values: dict[str, Any], node: YamlNode, at: FieldPath) -> dict[str, Any]:
    for group, members in values.items():
        nested = next((name for name in members or () if name in values and name != group), None)
        if nested is not None:
            fault = f'found "{nested}", which is a group, expected contexts and local only'
            at.into(group).problem(node, fault, hint="name the contexts of that group")
        elif "all" in (members or ()):
            at.into(group).problem(node, 'found "all", expected contexts and local only')
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


class GpuHourPrice(Value, frozen=True):
    """The price of one GPU for an hour; `own` is 0: the machines are one's own, and nothing is paid by the hour."""

    expected: str = "a price in the currency of the settings, from 0 to 10000, or `own`"

    def read(self, node: YamlNode, at: FieldPath) -> float | None:
        value = 0.0 if node.value == "own" else node.value
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 10_000:
            at.wrong(node, self.expected)
            return None
        return float(value)

    def schema(self) -> dict[str, Any]:
        return {"anyOf": [{"type": "number", "minimum": 0, "maximum": 10_000}, {"const": "own"}]}


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

GPU = Shape(
    fields=(
        Field(
            name="mode",
            kind=ChoiceOf(options=("plugin", "hostpath")),
            doc="Who brings the NVIDIA driver into pods: the cluster, or a mount of the nodes' own.",
            default="plugin",
        ),
        Field(name="driver", kind=_text("a folder of the nodes", check=_absolute), doc="hostpath: its folder."),
        Field(
            name="libcuda",
            kind=_text("a file of the nodes, or none", check=_library),
            doc="hostpath: libcuda.so.1, where it is not in that folder; else `none`.",
            default="that of Debian and Ubuntu",
        ),
    ),
    build=_gpu,
)

TOPOLOGY = Shape(
    fields=(
        Field(name="required", kind=_LABEL, doc="All pods on nodes with the same value of this label, or none."),
        Field(name="preferred", kind=_LABEL, doc="The same, if it can be."),
    ),
    build=_one_topology,
)

_GPU_HOUR = Field(
    name="gpu_hour",
    kind=GpuHourPrice(),
    doc="Price of one GPU for an hour, for `cost` and the choice of a cluster; `own`: nothing is paid.",
    default="that of the node's machine type",
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
    Field(name="gpu", kind=GPU, doc="How pods come by the GPU driver.", default="{mode: plugin}"),
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
    _GPU_HOUR,
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
        msgspec.structs.replace(_GPU_HOUR, default="own"),
    )
)

_URL = _text("an address that begins with https:// or http://", r"https?://[^\s/]+\S*")

NOTIFY = Shape(
    fields=(
        Field(name="webhook", kind=_URL, doc="Gets a JSON object when a run has ended."),
        Field(name="slack", kind=_URL, doc='Gets {"text": ...}, as Slack and others take it.'),
        Field(name="command", kind=_text("a shell command"), doc="Is run with that object as its input."),
        Field(
            name="on",
            kind=ListOf(item=ChoiceOf(options=FINAL_PHASES), what="phases"),
            doc="The ends that are told.",
            default="[succeeded, failed, stopped]",
        ),
    )
)

BUDGET = Shape(
    fields=(
        Field(
            name="gpu_hours", kind=WholeNumber(low=1, high=10**9), doc="GPU-hours that runs may hold.", required=True
        ),
        Field(name="per", kind=duration(3600.0), doc="In how long a time.", default="30d"),
        Field(
            name="hold",
            kind=Flag(),
            doc="Whether new runs with GPUs wait on this machine while it is used up; else they are warned of.",
            default="false",
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
        Field(
            name="groups",
            kind=MapOf(
                item=ListOf(item=_text("a context, or local"), what="contexts", least=1, most=50),
                what="names and lists of contexts",
                key=r"[A-Za-z][A-Za-z0-9._-]{0,62}",
                key_expected="a name for --on",
                check_key=_group_name,
                build=_groups,
            ),
            doc="Names for several clusters, for `--on NAME`; `local` is this machine.",
            default="{}",
        ),
        Field(
            name="currency",
            kind=_text("letters, such as EUR", r"[A-Z]{2,4}"),
            doc="The currency of the prices that you set; those that ship are in USD.",
            default="USD",
        ),
        Field(
            name="budgets",
            kind=MapOf(
                item=BUDGET,
                what="labels or users and their budgets",
                key=r"[\w./-]+=[\w.@-]+",
                key_expected="LABEL=VALUE, or user=NAME",
            ),
            doc="GPU-hours of runs with a label, or of a user, of which more are warned of.",
            default="{}",
        ),
        Field(name="notify", kind=NOTIFY, doc="Who is told of the end of runs.", default="{}"),
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

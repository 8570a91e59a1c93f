"""Cluster files of other tools, translated: acs-engine's (Azure) and Juju bundles (AWS); and what is lost. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from longboat.clouds.machine_types import shipped_table
from longboat.clusters.cloud.consistency import architecture_of
from longboat.core.jobs import Value
from longboat.specs.dump import to_yaml
from longboat.specs.fields.rules import suggest_name
from longboat.specs.yaml.yaml12 import parse_text
from longboat.specs.yaml.yaml_tree import Mistakes, plain

REGIONS = {"azure": "eastus", "aws": "us-east-1"}
SUCCESSORS = {
    "Standard_NC6": "Standard_NC4as_T4_v3",
    "Standard_NC12": "Standard_NC64as_T4_v3",
    "Standard_NC24": "Standard_NC64as_T4_v3",
    "Standard_NV6": "Standard_NC4as_T4_v3",
    "Standard_D2_v2": "Standard_D2s_v5",
    "Standard_D3_v2": "Standard_D4s_v5",
    "Standard_DS3_v2": "Standard_D4s_v5",
    "p2.xlarge": "g4dn.xlarge",
    "p2.8xlarge": "g4dn.metal",
    "g2.2xlarge": "g4dn.xlarge",
    "g3.4xlarge": "g4dn.4xlarge",
    "m3.medium": "t3.medium",
    "m3.large": "m5.large",
    "m4.large": "m5.large",
    "m4.xlarge": "m5.xlarge",
    "m4.2xlarge": "m5.2xlarge",
    "c4.large": "c5.large",
    "c4.xlarge": "c5.xlarge",
    "t2.medium": "t3.medium",
    "t2.large": "t3.large",
}
"""Machine types of those years -> the one of today with the same number of GPUs or more, and no less memory."""
_LABEL = re.compile(r"([A-Za-z0-9_./-]{1,253})=([A-Za-z0-9_.-]{0,63})")


class ImportedCluster(Value, frozen=True):
    source: str
    text: str
    untranslated: tuple[str, ...] = ()  # "field: why"


class _Draft:
    """The fields of a cluster file so far, and what was lost."""

    def __init__(self, kind: str, name: str) -> None:
        self.kind = kind
        self.fields: dict[str, Any] = {"name": suggest_name(name, fallback="lab"), "kind": kind}
        self.fields["region"] = REGIONS[kind]
        self.pools: list[dict[str, Any]] = []
        self.lost: list[str] = [f"region: the file has none, {REGIONS[kind]} is written; choose yours"]

    def machine(self, place: str, name: str) -> str:
        if name in shipped_table(self.kind).machines:
            return name
        if name in SUCCESSORS:
            self.lost.append(f"{place}: {name} is of former years, {SUCCESSORS[name]} is written instead")
            return SUCCESSORS[name]
        self.lost.append(f"{place}: {name} is not in the table of machine types; choose one, or machines: FILE adds it")
        return name

    def count(self, place: str, value: Any) -> int:
        count = _count(value)
        if value is not None and str(value) != str(count):
            self.lost.append(f"{place}: {_safe(str(value))[:40]} is no number of machines; {count} is written")
        return count

    def result(self, source: str, file: str) -> ImportedCluster:
        lines = [f"# Translated from {source}, {_safe(file)}.\n#\n# Not translated:\n"]
        lines += [f"# - {_safe(each)}\n" for each in self.lost]
        body = to_yaml({**self.fields, "pools": self.pools})
        return ImportedCluster(source=source, text="".join(lines) + body, untranslated=tuple(self.lost))


def import_cluster(text: str, *, file: str) -> ImportedCluster | None:
    """The cluster file that says the same, as far as it can; None: it is no cluster file of these tools."""
    mistakes = Mistakes()
    root = parse_text(text.removeprefix("\ufeff"), file=file, mistakes=mistakes)
    body = plain(root) if root is not None and not mistakes.problems else None
    if not isinstance(body, dict):
        return None
    properties = _mapping(body.get("properties"))
    if isinstance(properties.get("agentPoolProfiles"), list):
        return _acs_engine(properties, file)
    applications = _mapping(body.get("applications") or body.get("services"))
    if any("charm" in _mapping(each) for each in applications.values()):
        return _juju(applications, file)
    return None


def _acs_engine(properties: Mapping[str, Any], file: str) -> ImportedCluster:
    master = _mapping(properties.get("masterProfile"))
    draft = _Draft("azure", str(master.get("dnsPrefix") or "") or "lab")
    for number, profile in enumerate(properties["agentPoolProfiles"]):
        profile, place = _mapping(profile), f"agentPoolProfiles.{number}"
        name = re.sub(r"[^a-z0-9]", "", str(profile.get("name", "")).lower()).lstrip("0123456789")[:12]
        pool: dict[str, Any] = {
            "name": name or f"pool{number + 1}",
            "type": draft.machine(f"{place}.vmSize", str(profile.get("vmSize", ""))),
            "count": draft.count(f"{place}.count", profile.get("count")),
        }
        if _count(profile.get("OSDiskSizeGB"), 0) >= 20:
            pool["disk"] = f"{_count(profile['OSDiskSizeGB'])}Gi"
        if labels := _mapping(profile.get("customNodeLabels")):
            pool["labels"] = {str(key): str(value) for key, value in labels.items()}
        draft.pools.append(pool)
        known = {"name", "vmSize", "count", "OSDiskSizeGB", "customNodeLabels"}
        draft.lost += [f"{place}.{key}: AKS decides it" for key in profile if key not in known]
    if not any(pool["count"] for pool in draft.pools):
        draft.pools.insert(0, {"name": "system", "type": "Standard_D2s_v5", "count": 1})
    reasons = {
        "orchestratorProfile": "AKS is Kubernetes; `version` chooses which",
        "masterProfile": "AKS has the control plane",
        "linuxProfile": "nodes have no login",
        "servicePrincipalProfile": "the cluster has an identity of its own; the secret was not copied",
    }
    draft.lost += [f"{key}: {reasons.get(key, 'not used')}" for key in properties if key != "agentPoolProfiles"]
    return draft.result("acs-engine", file)


def _juju(applications: Mapping[str, Any], file: str) -> ImportedCluster:
    draft = _Draft("aws", "juju")
    for name, application in applications.items():
        application = _mapping(application)
        charm = str(application.get("charm", ""))
        if "kubernetes-worker" not in charm:
            draft.lost.append(f"{name}: {_role(charm)}")
            continue
        constraints = dict(
            part.split("=", 1) for part in str(application.get("constraints", "")).split() if "=" in part
        )
        has_gpu = "gpu" in name or "cuda" in name
        pool: dict[str, Any] = {
            "name": suggest_name(name.removeprefix("kubernetes-worker-"), fallback="workers"),
            "type": _machine(draft, name, constraints, has_gpu=has_gpu),
            "count": draft.count(f"{name}.num_units", application.get("num_units")),
        }
        if match := re.fullmatch(r"([0-9]{2,5})G", constraints.get("root-disk", "")):
            pool["disk"] = f"{match[1]}Gi"
        labels = dict(_LABEL.findall(str(_mapping(application.get("options")).get("labels", ""))))
        if labels:
            pool["labels"] = labels
        draft.pools.append(pool)
    return draft.result("a Juju bundle", file)


def _role(charm: str) -> str:
    if any(
        part in charm for part in ("kubernetes-master", "kubernetes-control-plane", "etcd", "easyrsa", "loadbalancer")
    ):
        return "EKS has the control plane"
    if any(part in charm for part in ("flannel", "calico", "canal")):
        return "EKS has a network of its own"
    return "not part of a cluster; run it as a job, or install it with kubectl"


def _machine(draft: _Draft, name: str, constraints: Mapping[str, str], *, has_gpu: bool) -> str:
    """The type that is named, else the cheapest with what is asked for."""
    if kind := constraints.get("instance-type"):
        return draft.machine(f"{name}.constraints", kind)
    cores = _count(constraints.get("cores") or constraints.get("cpu-cores"), 2)
    memory: float = _count(constraints.get("mem", "").rstrip("GM"), 4)
    memory /= 1024 if constraints.get("mem", "").endswith("M") else 1
    able = [
        each
        for each in shipped_table("aws").machines.values()
        if each.cpus >= cores and each.memory_gib >= memory and (each.gpus > 0) == has_gpu and _is_usual(each.type)
    ]
    if not able:
        return "m5.large"
    chosen = min(able, key=lambda each: each.price)
    draft.lost.append(f"{name}.constraints: {chosen.type} is the cheapest with so much ({chosen.text})")
    return chosen.type


def _is_usual(machine: str) -> bool:
    """Images of those years are not made for ARM."""
    return architecture_of(machine) == "x86_64"


def _count(value: Any, default: int = 1) -> int:
    text = str(value)
    return int(text) if re.fullmatch(r"[0-9]{1,5}", text) else default


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _safe(text: str) -> str:
    """One line of a comment."""
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())

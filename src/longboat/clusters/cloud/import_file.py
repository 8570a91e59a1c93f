"""Cluster files of other tools, translated: acs-engine's (Azure) and Juju bundles (AWS); and what is lost. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from longboat.clouds.machine_types import shipped_table
from longboat.clusters.cloud.azure.fields import LOCATION
from longboat.clusters.cloud.consistency import architecture_of, logical_name
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
    "Standard_NC24r": "Standard_NC64as_T4_v3",
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
MIB = {"": 1, "M": 1, "G": 1 << 10, "T": 1 << 20, "P": 1 << 30}
"""Sizes in Juju's constraints are MiB where no unit is said."""
UNDERSTOOD = ("instance-type", "cores", "cpu-cores", "mem", "root-disk")
_LABEL = re.compile(r"([A-Za-z0-9_./-]{1,253})=([A-Za-z0-9_.-]{0,63})")
_AKS_NAME = 12
"""Characters that the name of a pool of AKS may have."""


class ImportedCluster(Value, frozen=True):
    source: str
    text: str
    untranslated: tuple[str, ...] = ()  # "field: why"


class _Draft:
    """The fields of a cluster file so far, and what was lost."""

    def __init__(self, kind: str, name: str, region: str | None = None) -> None:
        self.kind = kind
        self.fields: dict[str, Any] = {"name": suggest_name(name, fallback="lab"), "kind": kind}
        self.fields["region"] = region or REGIONS[kind]
        self.pools: list[dict[str, Any]] = []
        missing = f"region: the file has none, {REGIONS[kind]} is written; choose yours"
        self.lost: list[str] = [] if region else [missing]

    def free_name(self, place: str, name: str, most: int) -> str:
        """A name that no other pool has: two that are cut off, or lose a character, may have become alike."""
        taken = {logical_name(pool["name"]) for pool in self.pools}
        free, number = name[:most], 1
        while logical_name(free) in taken:
            number += 1
            free = f"{name[: most - len(str(number))]}{number}"
        if number > 1:
            self.lost.append(f"{place}: another pool is called {name[:most]} already; {free} is written")
        return free

    def machine(self, place: str, name: str) -> str:
        if not name:
            self.lost.append(f"{place}: the file names no machine type; choose one")
            return name
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
        return _acs_engine(properties, _location(body.get("location")), file)
    applications = _mapping(body.get("applications") or body.get("services"))
    if any("charm" in _mapping(each) for each in applications.values()):
        return _juju(applications, _mapping(body.get("machines")), file)
    return None


def _location(value: Any) -> str | None:
    """`West Europe` is westeurope."""
    text = str(value or "").replace(" ", "").lower()
    return text if re.fullmatch(LOCATION, text) else None


def _acs_engine(properties: Mapping[str, Any], region: str | None, file: str) -> ImportedCluster:
    master = _mapping(properties.get("masterProfile"))
    draft = _Draft("azure", str(master.get("dnsPrefix") or "") or "lab", region)
    for number, profile in enumerate(properties["agentPoolProfiles"]):
        profile, place = _mapping(profile), f"agentPoolProfiles.{number}"
        if str(profile.get("osType", "Linux")).lower() != "linux":
            draft.lost.append(f"{place}: {_safe(str(profile['osType']))[:40]} machines; trainings run on Linux")
            continue
        name = re.sub(r"[^a-z0-9]", "", str(profile.get("name", "")).lower()).lstrip("0123456789")
        pool: dict[str, Any] = {
            "name": draft.free_name(f"{place}.name", name or f"pool{number + 1}", _AKS_NAME),
            "type": draft.machine(f"{place}.vmSize", str(profile.get("vmSize", ""))),
            "count": draft.count(f"{place}.count", profile.get("count")),
        }
        if _count(profile.get("OSDiskSizeGB"), 0) >= 20:
            pool["disk"] = f"{_count(profile['OSDiskSizeGB'])}Gi"
        if labels := _mapping(profile.get("customNodeLabels")):
            pool["labels"] = {str(key): str(value) for key, value in labels.items()}
        draft.pools.append(pool)
        known = {"name", "vmSize", "count", "OSDiskSizeGB", "customNodeLabels", "osType"}
        draft.lost += [f"{place}.{key}: AKS decides it" for key in profile if key not in known]
    if not any(pool["count"] for pool in draft.pools):
        name = draft.free_name("pools", "system", _AKS_NAME)
        draft.pools.insert(0, {"name": name, "type": "Standard_D2s_v5", "count": 1})
    reasons = {
        "orchestratorProfile": "AKS is Kubernetes; `version` chooses which",
        "masterProfile": "AKS has the control plane",
        "linuxProfile": "nodes have no login",
        "servicePrincipalProfile": "the cluster has an identity of its own; the secret was not copied",
    }
    draft.lost += [f"{key}: {reasons.get(key, 'not used')}" for key in properties if key != "agentPoolProfiles"]
    return draft.result("acs-engine", file)


def _juju(applications: Mapping[str, Any], machines: Mapping[str, Any], file: str) -> ImportedCluster:
    draft = _Draft("aws", "juju")
    for name, application in applications.items():
        application = _mapping(application)
        charm = str(application.get("charm", ""))
        if "kubernetes-worker" not in charm:
            draft.lost.append(f"{name}: {_role(charm)}")
            continue
        constraints = _constraints(draft, name, application, machines)
        has_gpu = "gpu" in name or "cuda" in name
        short = suggest_name(name.removeprefix("kubernetes-worker-"), fallback="workers")
        pool: dict[str, Any] = {
            "name": draft.free_name(name, short, len(short)),
            "type": _machine(draft, name, constraints, has_gpu=has_gpu),
            "count": draft.count(f"{name}.num_units", application.get("num_units")),
        }
        if disk := _mib(draft, f"{name}.constraints", "root-disk", constraints):
            pool["disk"] = f"{max(20, math.ceil(disk / 1024))}Gi"
        labels = dict(_LABEL.findall(str(_mapping(application.get("options")).get("labels", ""))))
        if labels:
            pool["labels"] = labels
        draft.pools.append(pool)
    if not draft.pools:
        draft.lost.append("pools: no application is a kubernetes-worker; write the pools")
    return draft.result("a Juju bundle", file)


def _constraints(
    draft: _Draft, name: str, application: Mapping[str, Any], machines: Mapping[str, Any]
) -> Mapping[str, str]:
    """Those of the application, else those of the first machine that the bundle puts it on."""
    text = application.get("constraints")
    places = application.get("to")
    if text is None and isinstance(places, list) and places:
        text = _mapping({str(key): value for key, value in machines.items()}.get(str(places[0]))).get("constraints")
    parts = text.split() if isinstance(text, str) else []
    usual = [part for part in parts if "=" in part and part.split("=", 1)[0] in UNDERSTOOD]
    odd = [part for part in parts if part not in (*usual, "arch=amd64")]
    if text is not None and not isinstance(text, str):
        odd = [str(text)]
    draft.lost += [f"{name}.constraints: {_safe(part)[:60]} is not used" for part in odd]
    return dict(part.split("=", 1) for part in usual)


def _mib(draft: _Draft, place: str, key: str, constraints: Mapping[str, str]) -> float:
    """A size in MiB; 0: none is asked for."""
    text = constraints.get(key, "")
    if match := re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,3})?)([MGTP]?)", text):
        return float(match[1]) * MIB[match[2]]
    if text:
        draft.lost.append(f"{place}: {key}={_safe(text)[:40]} is no size; it is not used")
    return 0.0


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
    memory = (_mib(draft, f"{name}.constraints", "mem", constraints) or 4096.0) / 1024
    able = [
        each
        for each in shipped_table("aws").machines.values()
        if each.cpus >= cores and each.memory_gib >= memory and (each.gpus > 0) == has_gpu and _is_usual(each.type)
    ]
    if not able:
        asked = f"{cores} CPUs and {memory:g} GiB{' with GPUs' if has_gpu else ''}"
        draft.lost.append(f"{name}.constraints: no machine type of the table has {asked}; choose one")
        return ""
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

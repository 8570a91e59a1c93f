"""What the fields of a cluster file must be together: roles, names, addresses, networks. Pure but for files that are
looked for. Goes on where fields are missing: every mistake is reported at once.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any

from longboat.clusters.fields import rules
from longboat.clusters.spec import Network
from longboat.specs.yaml.yaml_tree import Mistakes, YamlNode

Values = Mapping[str, Any]

FOREIGN = {
    "ssh": {"context": "a context is of the kind existing"},
    "local": {
        "hosts": "the kind local is this machine and has no hosts",
        "endpoint": "the kind local has one control plane",
        "vip": "the kind local has one control plane",
        "context": "a context is of the kind existing",
    },
    "existing": dict.fromkeys(
        ("hosts", "defaults", "endpoint", "vip", "versions", "source", "network", "firewall", "driver", "kubelet"),
        "the kind existing takes a cluster as it is: it has add-ons, and nothing of hosts",
    ),
}
"""Kind -> field -> why it cannot have it."""

POD_PREFIX = 24
"""Each node gets a network of this size, as kubeadm has it by default."""


class FieldMistakes:
    """The places of a file's values, for mistakes that rules across fields find."""

    def __init__(self, root: YamlNode, mistakes: Mistakes) -> None:
        self.root, self.mistakes = root, mistakes

    def wrong(self, keys: tuple[str | int, ...], message: str, *, hint: str | None = None) -> None:
        """Add a mistake at the value, or at its nearest parent that exists."""
        node = self.root
        for key in keys:
            inner = node.value
            if isinstance(inner, dict) and key in inner:
                node = inner[str(key)]
            elif isinstance(inner, list) and isinstance(key, int):
                node = inner[key]
        self.mistakes.add(node.place, ".".join(map(str, keys)), message, hint=hint)


class FileCheck(FieldMistakes):
    """A cluster file with the values that could be read and their places, for rules across fields."""

    def __init__(self, values: Values, root: YamlNode, mistakes: Mistakes) -> None:
        super().__init__(root, mistakes)
        self.values = values
        self.kind = values.get("kind", "ssh")
        listed = enumerate(values.get("hosts") or ())
        self.hosts: list[tuple[int, Values]] = [(index, host) for index, host in listed if isinstance(host, Mapping)]

    def check(self, folder: Path) -> None:
        self.check_kind()
        self.check_addons()
        self.check_names()
        self.check_control_planes()
        self.check_network()
        self.check_files(folder)

    def check_kind(self) -> None:
        given = self.root.value if isinstance(self.root.value, dict) else {}
        for field, reason in FOREIGN[self.kind].items():
            if field in given and given[field].value is not None:
                self.wrong((field,), reason)
        is_ssh = given.get("kind", YamlNode("ssh")).value in ("ssh", None)  # a kind that is none was told already
        if is_ssh and not given.get("hosts", YamlNode(None)).value:
            self.wrong(("hosts",), "the kind ssh needs hosts", hint="hosts: [user@gpu-1, user@gpu-2], or kind: local")
        if self.kind == "local":
            for field in {"user", "port", "key", "bastion"} & set(self.values.get("defaults") or {}):
                self.wrong(("defaults", field), "the kind local is this machine: nobody logs in")

    def check_addons(self) -> None:
        addons = self.values.get("addons") or ()
        for addon, count in Counter(addons).items():
            if addon and count > 1:
                self.wrong(("addons",), f"{addon} stands there {count} times")
        for addon in ("storage", "autoscaler"):
            if addon in addons and "image" not in self.values:
                self.wrong(
                    ("addons",), f"{addon} needs an image that has Longboat", hint="image: IMAGE; see deploy/Dockerfile"
                )
        if "autoscaler" in addons and "pools" not in self.values:
            self.wrong(("addons",), "autoscaler needs a pools file", hint="pools: pools.yaml; see docs/autoscaler.md")

    def check_names(self) -> None:
        """Report nodes without a name, duplicate names and machines listed twice."""
        names: dict[str, int] = {}
        places: dict[tuple[Any, ...], int] = {}
        for index, host in self.hosts:
            name = host.get("name") or rules.node_name_of(host.get("address", ""))
            if not name and "address" in host:
                self.wrong(("hosts", index), "no node's name can be made of the address", hint="name: gpu-1")
            if name and (first := names.setdefault(name, index)) != index:
                hint = None if "name" in host else "give one of them a name"
                self.wrong(("hosts", index, "name"), f"hosts.{first} is called {name} too", hint=hint)
            elif "address" in host:
                place = (host["address"], host.get("port"), host.get("bastion"))
                if (first := places.setdefault(place, index)) != index:
                    self.wrong(("hosts", index), f"the same machine as hosts.{first}: {host['address']}")

    def check_control_planes(self) -> None:
        planes = [index for index, host in self.hosts if host.get("role") == "control-plane"]
        count = len(planes) or 1
        if not planes and self.hosts and all("role" in host for _, host in self.hosts):
            self.wrong(("hosts",), "all hosts are workers", hint="role: control-plane for one of them")
        elif count not in (1, 3, 5):
            reason = (
                "an even number survives no more losses than one less" if count % 2 == 0 else "five survive any two"
            )
            self.wrong(("hosts",), f"found {count} control planes, expected 1, 3 or 5: {reason}")
        elif count > 1 and not any(self.is_given(field) for field in ("endpoint", "vip")):
            hint = "vip: an address of their subnet that nobody has, or endpoint: that of a load balancer"
            self.wrong(("endpoint",), f"{count} control planes need one address for all of them", hint=hint)
        if {"endpoint", "vip"} <= set(self.values):
            self.wrong(
                ("vip",), "endpoint and vip are two addresses for one thing", hint="vip alone: kube-vip brings it"
            )
        for index, host in self.hosts:
            for field in {"address", "node_address"} & set(host):
                if host[field] == self.values.get("vip"):
                    self.wrong(("vip",), f"{host[field]} is the address of hosts.{index}, expected one that nobody has")

    def is_given(self, field: str) -> bool:
        """Whether the file says something of a field, be it wrong."""
        given = self.root.value if isinstance(self.root.value, dict) else {}
        return field in given and given[field].value is not None

    def check_network(self) -> None:
        network = self.values.get("network") or Network()
        pods = IPv4Network(network.pods)
        room = 2 ** max(0, POD_PREFIX - pods.prefixlen)
        if pods.prefixlen > POD_PREFIX or len(self.hosts) > room:
            have = f"room for {room} nodes" if pods.prefixlen <= POD_PREFIX else "no room for a node"
            needed = max(1, len(self.hosts)) - 1
            wanted = IPv4Network(Network().pods).supernet(new_prefix=min(16, POD_PREFIX - needed.bit_length()))
            self.wrong(("network", "pods"), f"{pods} has {have}: each needs a /{POD_PREFIX}", hint=f"pods: {wanted}")
        for keys, text in self.addresses():
            address = rules.address_of(text)
            for title, taken in (("pods", pods), ("services", IPv4Network(network.services))):
                if address is not None and address.version == 4 and address in taken:
                    hint = f"choose another network.{title}"
                    self.wrong(keys, f"{address} lies in the network of {title}, {taken}", hint=hint)

    def addresses(self) -> Iterator[tuple[tuple[str | int, ...], str]]:
        for index, host in self.hosts:
            for field in ("address", "node_address"):
                if field in host:
                    yield ("hosts", index, field), host[field]
        if "endpoint" in self.values:
            yield ("endpoint",), rules.parse_login(self.values["endpoint"]).host
        if "vip" in self.values:
            yield ("vip",), self.values["vip"]

    def check_files(self, folder: Path) -> None:
        """Report local files and folders that do not exist."""
        for keys, text in self.named_files():
            path = resolved(text, folder)
            is_wanted = os.path.exists if keys == ("source", "location") else os.path.isfile
            if not rules.is_url(text) and not is_wanted(path):
                hint = "longboat cluster bundle makes one" if keys == ("source", "location") else None
                self.wrong(keys, f"no such file: {path}", hint=hint)

    def named_files(self) -> Iterator[tuple[tuple[str | int, ...], str]]:
        for index, host in self.hosts:
            if "key" in host:
                yield ("hosts", index, "key"), host["key"]
        if key := (self.values.get("defaults") or {}).get("key"):
            yield ("defaults", "key"), key
        network, source = self.values.get("network"), self.values.get("source")
        if network is not None and network.manifest:
            yield ("network", "manifest"), network.manifest
        if pools := self.values.get("pools"):
            yield ("pools",), pools
        for addon, text in self.values.get("manifests") or ():
            if text:
                yield ("manifests", addon), text.partition("#")[0]
        if source is not None:
            if source.location:
                yield ("source", "location"), source.location
            if source.images:
                yield ("source", "images"), source.images.partition("#")[0]
            if source.flanneld:
                yield ("source", "flanneld"), source.flanneld.partition("#")[0]
            for index, repository in enumerate(source.repositories):
                yield ("source", "repositories", index, "key"), repository.key


def resolved(text: str, folder: Path) -> str:
    """Resolve a path against the file's folder; URLs are left as they are."""
    return text if rules.is_url(text) else os.path.abspath(folder / Path(text).expanduser())

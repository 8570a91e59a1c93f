"""The first cluster file, with comments, as `longboat cluster init` writes it. Text only."""

from __future__ import annotations

import json

from longboat.clusters.spec import NetworkKind
from longboat.core.jobs import Value
from longboat.specs.yaml.yaml_tree import resolve

_HEAD = """\
# A cluster for `longboat cluster up`. All fields: docs/clusters.md
name: {name}
"""
_HOSTS = """\
hosts:  # the first is the control plane, unless one says `role: control-plane`
{hosts}
# - {{address: 10.0.0.7, user: root, key: ~/.ssh/id_ed25519, bastion: me@gate, labels: {{team: vision}}}}
network: {network}  # routes: all hosts on one network segment; flannel: whatever is between them
"""
_LOCAL = """\
kind: local  # this machine alone
"""
_REST = """\
addons: [controller{gpu}]  # also: jobset, kueue, storage, autoscaler, metrics
# image: registry.example.org/longboat:0.1.0  # for the controller: an image that has Longboat (deploy/Dockerfile)
# source: packages  # of the projects' repositories; a URL, a folder or a bundle file for hosts without a way out
# firewall: check   # open: open the ports that are needed; ignore: leave it alone
"""


class ClusterAnswers(Value, frozen=True):
    """Answers that fill the template of a cluster file. No hosts: this machine."""

    name: str
    hosts: tuple[str, ...] = ()
    network: NetworkKind = "routes"
    gpu: bool = False


def write_cluster_file(answers: ClusterAnswers) -> str:
    hosts = "\n".join(f"- {_scalar(host)}" for host in answers.hosts)
    body = _HOSTS.format(hosts=hosts, network=answers.network) if answers.hosts else _LOCAL
    return _HEAD.format(name=_scalar(answers.name)) + body + _REST.format(gpu=", gpu" if answers.gpu else "")


def _scalar(text: str) -> str:
    """Quote text that YAML would read as another type."""
    return text if isinstance(resolve(text), str) and text[0] != "[" else json.dumps(text)

"""Pods of workbench runs: files of the launcher's folder, and connections to their ports."""

from __future__ import annotations

from longboat.engines.kubernetes.exec.files import pod_of
from longboat.engines.kubernetes.exec.pod_exec import Remote
from longboat.engines.kubernetes.manifests.volumes import NODE
from longboat.engines.kubernetes.observe.observe import observe
from longboat.kubeapi.client import Client

PodName = tuple[str, str]
"""Namespace and name."""


def read_node_file(client: Client, run: str, name: str, most: int) -> tuple[bytes, PodName]:
    """A file of the launcher's folder in the pod of the run's first node, and that pod. Raises NotFound."""
    snapshot = observe(client, run, client.now())
    pod = pod_of(snapshot, node=None)
    content = b""
    for block in Remote(client, snapshot.record.namespace, pod.name).cat(f"{NODE}/{name}"):
        content += block
        if len(content) > most:
            break
    return content, (snapshot.record.namespace, pod.name)

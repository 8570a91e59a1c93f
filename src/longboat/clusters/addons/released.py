"""Add-ons that other projects publish as one manifest for each version: JobSet and Kueue, pinned."""

from __future__ import annotations

from longboat.clusters.addons.addon import AddonInputs, AddonManifest, Object
from longboat.clusters.addons.manifest_files import ReleasedManifest, load_manifest
from longboat.kubeapi.client import Client
from longboat.kubeapi.errors import AlreadyExists, ApiError, Forbidden, Invalid

JOBSET = ReleasedManifest(
    addon="jobset",
    version="0.12.0",
    url="https://github.com/kubernetes-sigs/jobset/releases/download/v0.12.0/manifests.yaml",
    images=("registry.k8s.io/jobset/jobset:v0.12.0",),
)
KUEUE = ReleasedManifest(
    addon="kueue",
    version="0.19.2",
    url="https://github.com/kubernetes-sigs/kueue/releases/download/v0.19.2/manifests.yaml",
    images=("registry.k8s.io/kueue/kueue:v0.19.2",),
)

JOBSET_SAMPLE: Object = {
    "apiVersion": "jobset.x-k8s.io/v1alpha2",
    "kind": "JobSet",
    "metadata": {"name": "longboat-sample", "namespace": "default"},
    "spec": {
        "replicatedJobs": [
            {
                "name": "main",
                "template": {
                    "spec": {
                        "template": {
                            "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "sample"}]}
                        }
                    }
                },
            }
        ]
    },
}
KUEUE_SAMPLE: Object = {
    "apiVersion": "kueue.x-k8s.io/v1beta2",
    "kind": "ClusterQueue",
    "metadata": {"name": "longboat-sample"},
    "spec": {},
}


def make_jobset(inputs: AddonInputs) -> AddonManifest:
    return _make(inputs, JOBSET, JOBSET_SAMPLE)


def make_kueue(inputs: AddonInputs) -> AddonManifest:
    return _make(inputs, KUEUE, KUEUE_SAMPLE)


def _make(inputs: AddonInputs, release: ReleasedManifest, sample: Object) -> AddonManifest:
    return AddonManifest(
        release.addon,
        load_manifest(inputs.spec, release),
        release.version,
        check=lambda client: webhook_fault(client, sample),
    )


def webhook_fault(client: Client, sample: Object) -> str:
    """Why its webhooks do not answer; empty: they do. A service leads to a pod some time after it is ready, and
    certificates are made meanwhile. A refusal is an answer: a policy of the cluster may have one.
    """
    try:
        client.create(sample, dry_run=True)
    except (Forbidden, Invalid, AlreadyExists):
        return ""
    except ApiError as error:
        return f"its webhooks do not answer yet: {error.message}"
    return ""

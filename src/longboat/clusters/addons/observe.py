"""What of add-ons is in a cluster: objects by name, by label, and how they would look after an apply."""

from __future__ import annotations

from longboat.clusters.addons.addon import AddonManifest, Object, ObjectKey, addon_of, object_key
from longboat.clusters.addons.decide import AddonPlan, decide
from longboat.clusters.addons.manifest_files import REMOVABLE
from longboat.clusters.spec import ADDON_LABEL
from longboat.kubeapi.client import Client
from longboat.kubeapi.errors import ObjectNotFound
from longboat.kubeapi.kinds import kind_of


def plan_addon(client: Client, manifest: AddonManifest) -> AddonPlan:
    """The plan for one add-on; the cluster is only looked at."""
    present: dict[ObjectKey, Object] = {}
    applied: dict[ObjectKey, Object] = {}
    for body in manifest.objects:
        found = client.find(kind_of(body), body["metadata"]["name"], namespace=body["metadata"].get("namespace"))
        if found is not None:
            present[object_key(body)] = found
            applied[object_key(body)] = client.apply(body, dry_run=True) if addon_of(found) else found
    labelled = labelled_objects(client, manifest.name) if any(map(addon_of, present.values())) else []
    return decide(manifest, present, applied, labelled)


def labelled_objects(client: Client, addon: str = "") -> list[Object]:
    """Everything that `up` made for this add-on, or for all of them, in the order of removal. A kind that the
    cluster does not know has none.
    """
    selector = f"{ADDON_LABEL}={addon}" if addon else ADDON_LABEL
    objects = []
    for kind in REMOVABLE:
        try:
            items = client.list(kind, everywhere=True, labels=selector).items
        except ObjectNotFound:
            continue
        objects += [{**body, "apiVersion": kind.api_version, "kind": kind.kind} for body in items]
    return objects

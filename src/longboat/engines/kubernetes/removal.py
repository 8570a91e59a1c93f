"""Removing a run without a trace; checkpoints stay unless purged. Code that other runs use stays too."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from longboat.core.errors import EngineError, NotFound
from longboat.engines.kubernetes import names
from longboat.engines.kubernetes.checkpoints import check_places
from longboat.engines.kubernetes.records import Record
from longboat.kubeapi.client import Client
from longboat.kubeapi.errors import ApiError, Forbidden, ObjectNotFound
from longboat.kubeapi.kinds import CONFIG_MAP, JOB, JOBSET, NETWORK_POLICY, PDB, POD, SECRET, SERVICE, Kind
from longboat.storage.checkpoints import OWN_FILE, OWN_FOLDER

GONE_S = 120.0  # pods have 30 s of grace, and a slow node needs a while
FIRST_PAUSE_S = 0.05  # pods of an ended run are gone at once
LONGEST_PAUSE_S = 1.0  # one list of each kind per second

SLICE = Kind("EndpointSlice", "discovery.k8s.io/v1", "endpointslices")
OWNED: tuple[Kind, ...] = (POD, JOB, SERVICE, SLICE, SECRET, PDB, NETWORK_POLICY)


def remove_run(client: Client, run: str, body: dict[str, Any], record: Record | None) -> None:
    """The run has ended. Its objects go with the record that owns them; returns when all are gone."""
    uid = str(body["metadata"]["uid"])
    client.delete(CONFIG_MAP, str(body["metadata"]["name"]), uid=uid)
    wait_until_gone(client, run, uid, record)


def wait_until_gone(client: Client, run: str, uid: str, record: Record | None) -> None:
    """Wait until all objects that the deleted record owned are gone. Raises EngineError."""
    # Without a record that can be read, labels and the owner tell what belongs to the run.
    kinds = (*OWNED, JOBSET) if record is None or record.workload == "jobset" else OWNED
    deadline = time.monotonic() + GONE_S
    pause = FIRST_PAUSE_S
    while left := leftovers(client, run, uid, kinds):
        if time.monotonic() > deadline:
            raise EngineError(
                f"{run} is being removed, but after {GONE_S:.0f} s these are still there: {', '.join(left[:10])}",
                hint="a machine that is lost keeps its pods: `kubectl delete pod --force`, then `longboat rm` again",
            )
        if pause >= LONGEST_PAUSE_S:
            fence_lost(client, run)
        time.sleep(pause)
        pause = min(pause * 1.5, LONGEST_PAUSE_S)


def fence_lost(client: Client, run: str) -> None:
    """Delete by force what is left on nodes that are gone or not ready: no kubelet there will say that it has ended."""
    from longboat.engines.kubernetes.observe.observe import observe_hosts
    from longboat.engines.kubernetes.observe.snapshot import pod_view

    try:
        pods = [pod_view(body) for body in client.list(POD, labels=names.pods_of(run)).items]
        left = [pod for pod in pods if pod.host and pod.deleting_since is not None and not pod.is_forced]
        hosts = observe_hosts(client, {str(pod.host) for pod in left}, left)
        for pod in left:
            host = hosts.get(str(pod.host))
            if host is not None and (not host.is_there or host.not_ready_since is not None):
                client.delete(POD, pod.name, grace_s=0, uid=pod.uid)
    except ApiError:
        return  # the next look tries again


def purge_store(record: Record, environment: Mapping[str, str]) -> None:
    """Checkpoints in an object store, with the credentials of whoever asks. Raises EngineError.

    The record says which bucket and folder: one that only this run can have. What it says about endpoints, accounts,
    credentials and files is not used: anybody may have written it.
    """
    if record.checkpoint_store is None:
        return
    from longboat.engines.shared.checkpoint_store import callers_variables, purge_for
    from longboat.engines.shared.home import Home

    check_places(record)
    home = Home(environment=environment)
    purge_for(record.job, record.checkpoint_store, callers_variables(home, environment))


def clear_storage(client: Client, record: Record, *, purge: bool) -> list[str]:
    """Remove what the run kept outside of its objects: logs, artifacts, code; with `purge`, its checkpoints too. What a
    purge leaves: in a folder that the job names, others may have put files of their own."""
    from longboat.engines.kubernetes.exec.helper_pod import HelperPod
    from longboat.engines.kubernetes.manifests.volumes import NODE, STORAGE, places, run_storage

    # Folders follow from the run's own name; what the record says about them may be another run's.
    own = run_storage(record.job, record.storage, run=record.name, uid=record.uid)
    kept = places(record.job, own, run=record.name, uid=record.uid)
    base = None if own is None else f"{STORAGE}/{own.folder}"
    doomed = [] if base is None else [base] if purge else [f"{base}/{part}" for part in ("logs", "artifacts", "code")]
    is_named = not kept.checkpoints.startswith((f"{NODE}/", f"{base}/"))
    shared = kept.checkpoints if purge and is_named else None
    if not doomed and shared is None:
        return []
    rest: list[str] = []
    try:
        with HelperPod.of_run(client, record) as helper:
            if shared is not None:
                rest = helper.remove_named(shared, OWN_FOLDER, OWN_FILE)
            for path in doomed:
                helper.remove(path)
            if base is not None and not purge:  # a run that wrote no checkpoint leaves nothing: rmdir takes empty ones
                helper.run(["rmdir", "--", f"{base}/checkpoints", base])
    except (NotFound, EngineError):
        # The helper goes with the record, also in the middle of its work: somebody else has removed the run meanwhile,
        # and cleared this before.
        if client.find(CONFIG_MAP, record.name) is not None:
            raise
    return [f"{shared}/{name}" for name in rest]


def leftovers(client: Client, run: str, uid: str, kinds: tuple[Kind, ...]) -> list[str]:
    """Objects of the run that are still there; what may not be listed is not known."""
    left = []
    record = client.find(CONFIG_MAP, run)
    if record is not None and record["metadata"].get("uid") == uid:
        left.append(f"configmap {run}")
        return left
    for label in (names.RUN, names.TEMPLATE_OF):
        selector = names.selector([(names.MANAGED_BY, "longboat"), (label, run)])
        for kind in kinds if label == names.RUN else [kind for kind in kinds if kind in (JOB, JOBSET)]:
            left += _listed(client, kind, selector, uid)
    return left


def _listed(client: Client, kind: Kind, selector: str, uid: str) -> list[str]:
    try:
        items = client.list(kind, labels=selector).items
    except (Forbidden, ObjectNotFound):
        return []
    except ApiError:
        return [f"{kind.plural} (unknown)"]
    return [f"{kind.kind.lower()} {each['metadata']['name']}" for each in items if _is_owned(each, uid)]


def _is_owned(body: dict[str, Any], uid: str) -> bool:
    """Whether this record owns it, directly or indirectly: a new run of the same name may exist already."""
    owners = body["metadata"].get("ownerReferences") or ()
    return any(owner.get("uid") == uid or owner.get("kind") in ("Job", "JobSet", "Service") for owner in owners)

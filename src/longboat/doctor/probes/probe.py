"""The probes themselves: two pods that talk, a pod that writes to a claim, a pod that trains for one step."""

from __future__ import annotations

import time
from typing import Any

import msgspec

from longboat.core.guards.decoding import convert
from longboat.doctor.probes.outcomes import NetworkProbe, PodOutcome, PodReport, StorageProbe, TrainProbe
from longboat.doctor.probes.pods import ProbePods, refusal
from longboat.engines.kubernetes.exec.helper_pod import HelperMounts
from longboat.engines.kubernetes.manifests.volumes import STORAGE, claim_object
from longboat.engines.kubernetes.records import Storage
from longboat.kubeapi.errors import ApiError, Forbidden, Invalid
from longboat.kubeapi.kinds import PVC

BANDWIDTH_S = 5.0  # TCP is at full speed after a second; longer would only load the network
STREAMS = 4  # one connection does not fill a fast line
NO_CLASS = StorageProbe(
    skipped="there is no default storage class, and no storage is set",
    hint="`longboat config set kubernetes.storage.claim NAME`, or a default storage class",
)
CLAIM_SIZE = 64 << 20  # some clouds give no less than a GiB, and round it up


def network_probe(pods: ProbePods, interface: str = "") -> NetworkProbe:
    """A pod that answers and one that asks. Raises ApiError where pods may not be made."""
    image = pods.settings.image
    server, peer = start_server(pods)
    if server.problem:
        return NetworkProbe(server=server, client=server, image=image, interface_wanted=interface)
    outcome, report = pods.run("look", peer)
    outcome = _with_log(pods, outcome)
    if not outcome.problem:
        outcome = msgspec.structs.replace(outcome, report=_report(report))
    return NetworkProbe(server=server, client=outcome, image=image, interface_wanted=interface)


def start_server(pods: ProbePods) -> tuple[PodOutcome, str]:
    """The pod that answers, and its address."""
    try:
        name = pods.start("serve")
    except (Forbidden, Invalid) as error:
        return PodOutcome(problem=refusal(error), kind="admission"), ""
    outcome, pod, _ = pods.wait(name, until_running=True)
    return outcome, str((pod.get("status") or {}).get("podIP") or "")


def _with_log(pods: ProbePods, outcome: PodOutcome) -> PodOutcome:
    """The API server fetches a log from the node's kubelet: a way that often is closed."""
    try:
        with pods.client.log(f"longboat-doctor-{pods.token}-serve", idle_s=10.0, patience_s=5.0) as stream:
            for _ in stream:
                break
    except Forbidden:
        return msgspec.structs.replace(outcome, log_is_forbidden=True)
    except ApiError as error:
        return msgspec.structs.replace(outcome, log_error=error.message)
    return outcome


def _report(report: Any) -> PodReport:
    try:
        return convert(report, PodReport)
    except msgspec.ValidationError as error:
        return PodReport(peer_error=f"the pod's report is not understood: {error}")


def bandwidth(pods: ProbePods) -> tuple[PodOutcome, PodOutcome]:
    """Of the pod that receives, and the one that sends with its report."""
    server, peer = start_server(pods)
    if server.problem:
        return server, server
    outcome, report = pods.run("measure", peer, str(STREAMS), str(BANDWIDTH_S))
    return server, outcome if outcome.problem else msgspec.structs.replace(outcome, report=_report(report))


def storage_probe(pods: ProbePods, storage: Storage | None, storage_class: str | None) -> StorageProbe:
    """Write to the storage of the settings; without one, to a claim of this class (or of the default one)."""
    began = time.monotonic()
    title, claim = (storage.place, None) if storage is not None else ("a new claim", f"longboat-doctor-{pods.token}")
    if claim is not None:
        body = claim_object(
            claim, pods.client.namespace, size=CLAIM_SIZE, storage_class=storage_class, access="ReadWriteOnce"
        )
        body["metadata"]["labels"] = pods.labels
        try:
            pods.create(PVC, body)
        except (Forbidden, Invalid) as error:
            return StorageProbe(title=title, problem=refusal(error), hint=error.hint)
        if not (pods.client.get(PVC, claim).get("spec") or {}).get("storageClassName"):
            return NO_CLASS  # whoever may not list classes learns it here: the API server puts the default one in
    outcome, report = pods.run("write", STORAGE, mounts=HelperMounts.of_storage(storage or Storage(claim=claim)))
    if outcome.kind in ("image", "admission"):  # other checks say so
        return StorageProbe(skipped=f"no pod could write: {outcome.problem}")
    problem = outcome.problem or str(report.get("problem") or "")
    if outcome.kind in ("scheduling", "start") and claim is not None:
        problem = f"{problem}; {_claim_state(pods, claim)}"
    return StorageProbe(title=title, problem=problem, took_s=time.monotonic() - began)


def _claim_state(pods: ProbePods, claim: str) -> str:
    phase = (pods.client.get(PVC, claim).get("status") or {}).get("phase")
    return f"the claim is {phase}"


def train_probe(pods: ProbePods, gpu: str, count: int) -> TrainProbe:
    """A pod that trains for one step, with `count` of the GPU resource where there is one."""
    outcome, report = pods.run("train", str(count if gpu else 0), gpu=gpu, count=count)
    asked = count if gpu else 0
    if outcome.problem:
        return TrainProbe(gpus=asked, node=outcome.node, problem=outcome.problem, kind=outcome.kind)
    try:
        probe = convert(dict(report), TrainProbe)
    except msgspec.ValidationError as error:
        return TrainProbe(gpus=asked, node=outcome.node, problem=f"its report is not understood: {error}", kind="end")
    return msgspec.structs.replace(probe, gpus=asked, node=outcome.node)

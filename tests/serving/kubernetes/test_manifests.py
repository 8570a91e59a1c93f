"""Objects of a service in a cluster, of those of a run."""

from __future__ import annotations

import msgspec
import pytest

from longboat.core.errors import EngineError
from longboat.core.jobs import Checkpoints, Job, Role, Serve, Volume
from longboat.core.runs import RunStatus
from longboat.serving.kubernetes.checkpoint_pin import pin
from longboat.serving.kubernetes.manifests import (
    NAME,
    PORT,
    RECORD,
    TRACK,
    VERSION,
    Object,
    ServingRecord,
    autoscaler_object,
    canary_replicas,
    promoted,
    service_objects,
)
from longboat.serving.kubernetes.services import _restored
from longboat.serving.kubernetes.status import (
    GOLDEN_FAILED,
    UNFINISHED,
    failed_starts,
    is_older,
    phase_of,
    promoted_record,
    record_of,
    status_of,
    takes_requests,
)

RUN: list[Object] = [
    {
        "kind": "Secret",
        "metadata": {"name": "lb-launcher-x", "namespace": "ns", "labels": {"a": "b"}},
        "data": {"l": "1"},
    },
    {"kind": "Secret", "metadata": {"name": "svc-v2-a0", "namespace": "ns"}, "data": {"gang": "1"}},
    {"kind": "PodDisruptionBudget", "metadata": {"name": "svc-v2", "namespace": "ns"}},
    {"kind": "NetworkPolicy", "metadata": {"name": "svc-v2", "namespace": "ns"}},
    {"kind": "Service", "metadata": {"name": "svc-v2-a0", "namespace": "ns"}},
    {
        "kind": "Job",
        "metadata": {"name": "svc-v2-a0-server", "namespace": "ns"},
        "spec": {
            "template": {
                "metadata": {"labels": {"longboat.dev/run": "svc-v2"}},
                "spec": {
                    "restartPolicy": "Never",
                    "subdomain": "svc-v2-a0",
                    "containers": [
                        {"name": "main", "command": ["python3", "-I", "launcher.pyz", "--pod", "/longboat"]}
                    ],
                    "volumes": [
                        {"name": "gang", "secret": {"secretName": "svc-v2-a0"}},
                        {"name": "code", "projected": {"sources": [{"secret": {"name": "lb-launcher-x"}}]}},
                    ],
                },
            }
        },
    },
]
SERVE = Serve(replicas=3, ready="/r", live="/l", start_s=90.0, drain_s=20.0, tolerance=0.5)
SERVED = ServingRecord(run="train", step=7, version=2, command=("app",), serve=SERVE)


def test_a_deployment_that_keeps_its_promise_and_owns_the_rest() -> None:
    deployment, first, second, service, budget = service_objects("svc", SERVED, RUN, "n0")
    spec = deployment["spec"]
    assert spec["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0} and spec["replicas"] == 3
    assert [first["metadata"]["name"], second["metadata"]["name"]] == ["svc-v2-n0-0", "svc-v2-n0-1"]
    assert first["metadata"]["labels"] == {NAME: "svc", VERSION: "2"}, "not a shared Secret of runs any more"
    pod = spec["template"]["spec"]
    assert pod["volumes"][0]["secret"]["secretName"] == "svc-v2-n0-1"
    assert pod["volumes"][1]["projected"]["sources"] == [{"secret": {"name": "svc-v2-n0-0"}}]
    assert pod["volumes"][0]["name"] == "gang" and pod["containers"][0]["name"] == "main"
    assert pod["restartPolicy"] == "Always" and pod["terminationGracePeriodSeconds"] > 20 and "subdomain" not in pod
    # Labels of runs would make it part of one.
    assert spec["template"]["metadata"]["labels"] == {NAME: "svc", VERSION: "2", TRACK: "stable"}
    assert pod["topologySpreadConstraints"][0]["labelSelector"] == {"matchLabels": {NAME: "svc"}}
    assert budget["spec"] == {"maxUnavailable": 1, "selector": {"matchLabels": {NAME: "svc"}}}
    assert service["spec"]["selector"] == {NAME: "svc"}
    assert service["spec"]["ports"] == [{"name": "http", "port": 80, "targetPort": PORT}]


def test_probes() -> None:
    container = service_objects("svc", SERVED, RUN, "n0")[0]["spec"]["template"]["spec"]["containers"][0]
    startup = container["startupProbe"]
    assert startup["exec"]["command"][-6:] == ["--ready", "/longboat", str(PORT), "/r", "golden", "0.5"]
    assert startup["failureThreshold"] * startup["periodSeconds"] >= 90
    assert container["readinessProbe"]["httpGet"] == {"path": "/r", "port": PORT}
    assert container["livenessProbe"]["httpGet"] == {"path": "/l", "port": PORT}
    plain = msgspec.structs.replace(SERVED, serve=Serve(golden=False))
    container = service_objects("svc", plain, RUN, "n0")[0]["spec"]["template"]["spec"]["containers"][0]
    assert container["readinessProbe"]["tcpSocket"] == {"port": PORT}
    assert container["startupProbe"]["exec"]["command"][-3:] == ["-", "-", "-"]


def test_the_record_is_read_again() -> None:
    deployment = service_objects("svc", SERVED, RUN, "n0")[0]
    assert RECORD in deployment["metadata"]["annotations"] and record_of(deployment) == SERVED


def test_a_moment_that_no_clock_shows_is_damage() -> None:
    """Whoever may patch a Deployment can write it, and a list of services shows it to all."""
    forged = msgspec.structs.replace(SERVED, created=1e300)
    with pytest.raises(EngineError, match="damaged"):
        record_of(service_objects("svc", forged, RUN, "n0")[0])


def deployed(generation: int = 2, seen: int = 2, **status: int) -> Object:
    return {
        "metadata": {"name": "svc", "generation": generation},
        "spec": {"replicas": 2},
        "status": {"observedGeneration": seen, **status},
    }


def test_phases() -> None:
    assert phase_of(deployed()) == "starting"
    assert phase_of(deployed(replicas=2, updatedReplicas=2, readyReplicas=2)) == "ready"
    assert phase_of(deployed(replicas=2, updatedReplicas=2, readyReplicas=1)) == "degraded"
    assert phase_of(deployed(replicas=3, updatedReplicas=1, readyReplicas=2)) == "updating"
    assert phase_of(deployed(seen=1, replicas=2, updatedReplicas=2, readyReplicas=2)) == "updating"
    gone = deployed()
    gone["metadata"]["deletionTimestamp"] = "now"
    assert phase_of(gone) == "stopping"


def test_only_wrong_answers_are_a_failed_version() -> None:
    for reason in (
        "golden case 1 of 5 (POST /predict): answer.y is 1.5, expected 1",
        "golden.json is damaged: 'path'",
        "golden.json cannot be read: Permission denied",
        "golden.json is larger than 16777216 bytes",
    ):
        assert GOLDEN_FAILED.match(reason)
    for reason in (
        'Failed to pull image "registry/golden:1"',
        "0/3 nodes are available: golden",
        "no HTTP answer: golden case 1 of 5 (POST /predict): status 503",
    ):
        assert not GOLDEN_FAILED.match(reason)


def test_secrets_of_a_newer_version_stay() -> None:
    def of_version(label: str | None) -> Object:
        return {"metadata": {"name": "s", "labels": None if label is None else {VERSION: label}}}

    assert is_older(of_version("1"), 2) and is_older(of_version("9"), 10)
    assert not any(is_older(of_version(label), 2) for label in ("2", "3", None, "x", "-1", "\u0661", "9" * 5000))


def test_an_ingress_where_one_is_asked_for() -> None:
    asked = msgspec.structs.replace(SERVED, serve=Serve(ingress="model.example.org", port=81))
    ingress = service_objects("svc", asked, RUN, "n0")[-1]
    (rule,) = ingress["spec"]["rules"]
    backend = rule["http"]["paths"][0]["backend"]["service"]
    assert (ingress["kind"], rule["host"], backend) == (
        "Ingress",
        "model.example.org",
        {"name": "svc", "port": {"number": 81}},
    )


def test_the_secrets_of_the_job_are_the_services_own() -> None:
    job = {**RUN[-1]}
    reference = {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "svc-v2-env", "key": "TOKEN"}}}
    spec = RUN[-1]["spec"]["template"]["spec"]
    container = {**spec["containers"][0], "env": [reference]}
    job["spec"] = {"template": {"spec": {**spec, "containers": [container]}}}
    secret = {"kind": "Secret", "metadata": {"name": "svc-v2-env", "namespace": "ns"}, "data": {"TOKEN": "eA=="}}
    deployment, *rest = service_objects("svc", SERVED, [secret, *RUN[:-1], job], "n0")
    given = deployment["spec"]["template"]["spec"]["containers"][0]["env"]
    assert given == [{"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "svc-v2-n0-0", "key": "TOKEN"}}}]
    assert (rest[0]["metadata"]["name"], rest[0]["data"]) == ("svc-v2-n0-0", {"TOKEN": "eA=="})
    assert "eA==" not in str(deployment)


def test_a_canary_is_a_deployment_behind_the_same_service() -> None:
    stable = service_objects("svc", SERVED, RUN, "n0")[0]
    newer = msgspec.structs.replace(SERVED, version=3, step=9, serve=Serve(replicas=1))
    canary, *rest = service_objects("svc", newer, RUN, "n1", track="canary")
    assert canary["metadata"]["name"] == "svc-canary" and {body["kind"] for body in rest} == {"Secret"}
    selectors = [body["spec"]["selector"]["matchLabels"] for body in (stable, canary)]
    assert selectors == [{NAME: "svc", TRACK: "stable"}, {NAME: "svc", TRACK: "canary"}]
    assert canary["spec"]["template"]["metadata"]["labels"].items() >= selectors[1].items()
    # Promoted, its template is that of the stable one, with as many replicas as before.
    taken = promoted(stable, canary, msgspec.structs.replace(newer, serve=SERVE))
    assert taken["spec"]["template"]["metadata"]["labels"] == {**selectors[0], VERSION: "3"}
    assert taken["spec"]["template"]["spec"] == canary["spec"]["template"]["spec"]
    assert taken["spec"]["replicas"] == 3 and taken["spec"]["selector"]["matchLabels"] == selectors[0]
    assert (record_of(taken).step, record_of(taken).serve) == (9, SERVE)


def test_the_share_of_a_canary_is_that_of_its_replicas() -> None:
    assert [canary_replicas(9, weight) for weight in (1, 10, 50, 90)] == [1, 1, 9, 81]
    assert canary_replicas(1, 10) == 1


def test_scaling_by_load() -> None:
    spec = autoscaler_object("svc", "ns", Serve(replicas=2, max_replicas=6))["spec"]
    assert (spec["minReplicas"], spec["maxReplicas"], spec["scaleTargetRef"]["name"]) == (2, 6, "svc")


def run_at(checkpoint: str | None, folder: str) -> RunStatus:
    return RunStatus(
        name="train",
        uid="u",
        job="train",
        phase="succeeded",
        engine="kubernetes",
        created=0.0,
        nodes=1,
        gpus=0,
        checkpoint=checkpoint,
        checkpoint_dir=folder,
    )


def test_a_version_is_pinned_to_the_checkpoint_that_was_newest() -> None:
    kept = run_at("/longboat/storage/x/checkpoints/step-20", "/longboat/storage/x/checkpoints")
    assert pin(kept, None) == ("train", 20), "the engine writes down the folder"
    assert pin(kept, 10) == ("train:10", 10)
    stored = run_at("s3://team/c/train/step-20", "s3://team/c/train")
    assert pin(stored, None) == ("s3://team/c/train/step-20", 20), "not whatever is the newest at a restart"
    assert pin(run_at("s3://other/step-20", "s3://team/c/train"), None) == ("train", 20)
    assert pin(run_at(None, "/c"), None) == ("train", None)


def observed(record: ServingRecord, replicas: int, ready: int, name: str = "svc") -> Object:
    body = service_objects("svc", record, RUN, "n0")[0]
    counts = {"replicas": replicas, "updatedReplicas": replicas, "readyReplicas": ready}
    return {
        **body,
        "metadata": {**body["metadata"], "name": name},
        "spec": {**body["spec"], "replicas": replicas},
        "status": counts,
    }


def test_a_status_with_a_canary() -> None:
    newer = msgspec.structs.replace(SERVED, version=3, step=9)
    stable, canary = observed(SERVED, 3, 3), observed(newer, 1, 1, "svc-canary")
    status = status_of(stable, canary, "", "ns")
    assert (status.phase, status.canary, status.weight, status.step) == ("ready", "train:9", 25, 7)
    waiting = status_of(stable, observed(newer, 1, 0, "svc-canary"), "is being started", "ns")
    assert (waiting.phase, waiting.ready) == ("updating", 3)
    wrong = status_of(stable, observed(newer, 1, 0, "svc-canary"), "golden case 1 of 5 (POST /p): x", "ns")
    assert wrong.phase == "degraded"
    assert status_of(observed(SERVED, 0, 0), None, "has no pods yet", "ns").reason == UNFINISHED


def test_a_failed_version_gives_nothing_on() -> None:
    first = msgspec.structs.replace(SERVED, last_command=("old",), last_serve=Serve(replicas=1, ready="/old"))
    second = msgspec.structs.replace(first, serve=Serve(replicas=4, ready="/new"))
    kept = second.without_failed()
    assert (kept.command, kept.serve) == (("old",), Serve(replicas=4, ready="/old"))
    first_of_all = SERVED.without_failed()
    assert (first_of_all.command, first_of_all.serve, first_of_all.failed) == (SERVED.command, SERVED.serve, (7,))


def test_starts_that_failed_count_until_a_version_was_there() -> None:
    beside = {"name": "istio-proxy", "restartCount": 9}
    waiting = {"status": {"containerStatuses": [beside, {"name": "main", "restartCount": 3}]}, "metadata": {}}
    assert failed_starts({}, [waiting, {"metadata": {}}]) == 3, "of its server, not of what a mesh puts beside it"
    was_there = {"status": {"conditions": [{"type": "Progressing", "reason": "NewReplicaSetAvailable"}]}}
    assert failed_starts(was_there, [waiting]) == 0
    ready = {**waiting, "status": {**waiting["status"], "conditions": [{"type": "Ready", "status": "True"}]}}
    assert failed_starts({}, [ready]) == 0


def test_a_canary_brings_what_is_asked_of_replicas() -> None:
    stable = msgspec.structs.replace(SERVED, serve=Serve(replicas=3, max_replicas=5, ready="/old", port=81))
    canary = msgspec.structs.replace(SERVED, version=9, serve=Serve(replicas=1, ready="/new"))
    promoted = promoted_record(stable, canary)
    assert promoted.version == 9
    assert promoted.serve == Serve(replicas=3, max_replicas=5, ready="/new", port=81)


def test_pods_that_take_requests() -> None:
    ready = [{"type": "Ready", "status": "True"}]
    assert takes_requests({"metadata": {}, "status": {"conditions": ready}})
    assert not takes_requests({"metadata": {"deletionTimestamp": "now"}, "status": {"conditions": ready}})
    assert not takes_requests({"metadata": {}, "status": {}})


def test_replicas_find_checkpoints_in_the_volume_that_the_run_kept_them_in() -> None:
    """Without it they would have no storage where the context names none."""
    role = Role(name="worker", run="true")
    kept = Job(
        name="digits",
        roles=(role,),
        volumes=(Volume(target="/models", claim="models"),),
        checkpoints=Checkpoints(to="/models/digits"),
    )
    assert _restored(kept, "digits:7") == Checkpoints(to="/models/digits", resume="digits:7")
    for elsewhere in ("az://account/models", None, "checkpoints"):
        job = msgspec.structs.replace(kept, checkpoints=Checkpoints(to=elsewhere))
        assert _restored(job, "digits:7") == Checkpoints(resume="digits:7")

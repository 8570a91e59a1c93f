"""Helper pods: short-lived pods that mount a volume, to read and write it when no pod of the run lives.

One does nothing by itself; everything is done by exec (`pod_exec`). It fits the restricted Pod Security level, asks for
little, is removed at once when it is no longer needed, and ends by itself should that fail.
"""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from longboat.core.errors import EngineError
from longboat.core.jobs import Value
from longboat.engines.kubernetes import names
from longboat.engines.kubernetes.exec.pod_exec import Remote
from longboat.engines.kubernetes.manifests.security_context import container_security, pod_security
from longboat.engines.kubernetes.manifests.volumes import STORAGE, is_inside, pod_volumes, storage_source
from longboat.engines.kubernetes.observe.termination import container_of
from longboat.engines.kubernetes.records import Record, Storage
from longboat.kubeapi.client import Client
from longboat.kubeapi.errors import ApiError, Forbidden
from longboat.kubeapi.kinds import CONFIG_MAP, POD

LIFE_S = 4 * 3600
"""A forgotten one ends by itself after so long."""
START_S = 180.0  # a volume of another zone or node is attached, and a small image pulled, in a minute or two
HOPELESS = ("InvalidImageName", "ErrImageNeverPull", "CreateContainerConfigError", "CreateContainerError")
PULLING = ("ErrImagePull", "ImagePullBackOff")
PULL_S = 45.0
"""For so long a failing pull is tried again by the kubelet before we give up."""

Security = Literal["baseline", "restricted"]
Object = dict[str, Any]


class HelperPodOptions(Value, frozen=True):
    """Owner of a helper pod, and what the cluster needs to start it."""

    run: str = ""
    owner: str | None = None  # uid of the run's record
    pull_secrets: tuple[str, ...] = ()
    service_account: str | None = None


class HelperMounts(Value, frozen=True):
    """What it mounts: `volumes` of the pod and `mounts` of its container."""

    volumes: list[Object]
    mounts: list[Object]

    @classmethod
    def of_storage(cls, storage: Storage) -> HelperMounts:
        volumes = [{"name": "storage", **storage_source(storage)}]
        return cls(volumes=volumes, mounts=[{"name": "storage", "mountPath": STORAGE}])

    @classmethod
    def of_run(cls, record: Record, paths: Sequence[str] | None = None) -> HelperMounts:
        """Lasting volumes of a run where its pods have them: all, or those that hold one of these paths."""
        volumes, mounts = pod_volumes(record)
        lasting = {volume["name"] for volume in volumes if "emptyDir" not in volume}
        chosen = [mount for mount in mounts if mount["name"] in lasting]
        if paths is not None:
            chosen = [mount for mount in chosen if any(is_inside(path, mount["mountPath"]) for path in paths)]
        needed = {mount["name"] for mount in chosen}
        return cls(volumes=[volume for volume in volumes if volume["name"] in needed], mounts=chosen)

    @property
    def claims(self) -> set[str]:
        sources = (volume.get("persistentVolumeClaim") for volume in self.volumes)
        return {str(source["claimName"]) for source in sources if source}


class HelperPod(Remote):
    """`with HelperPod(client, storage, image=...) as pod:`; the storage is at /longboat/storage.

    `security`: as whom it runs; None takes what the namespace allows.
    """

    def __init__(
        self,
        client: Client,
        storage: Storage | HelperMounts,
        *,
        image: str,
        security: Security | None = None,
        namespace: str | None = None,
        options: HelperPodOptions | None = None,
    ) -> None:
        super().__init__(client, namespace or client.namespace, f"longboat-helper-{secrets.token_hex(4)}")
        self._mounts = storage if isinstance(storage, HelperMounts) else HelperMounts.of_storage(storage)
        self._image = image
        self._security = security
        self._options = options or HelperPodOptions()

    @classmethod
    def of_run(
        cls, client: Client, record: Record, paths: Sequence[str] | None = None, *, is_own: bool = False
    ) -> HelperPod:
        """A helper pod with these paths (default: storage and checkpoints) mounted as in the run's pods.

        It has no other volume of the run: one that cannot be mounted may be just why the run failed. Unless the record
        is the caller's own (`is_own`: just made, here), it gets nothing that the run's Jobs have not got: a record can
        be written by those who may start no pods. Raises EngineError.
        """
        owner = client.find(CONFIG_MAP, record.name, namespace=record.namespace)
        options = HelperPodOptions(
            run=record.name,
            owner=owner["metadata"]["uid"] if owner is not None else None,
            pull_secrets=record.pull_secrets,
            service_account=record.service_account,
        )
        pod = cls(
            client,
            HelperMounts.of_run(record, [STORAGE, record.checkpoint_dir] if paths is None else paths),
            image=record.images[record.job.roles[0].name],
            security=record.security,
            namespace=record.namespace,
            options=options,
        )
        if not is_own:
            pod._check_vouched(record)
        return pod

    def _check_vouched(self, record: Record) -> None:
        from longboat.engines.kubernetes.creation import is_vouched, vouched_pods

        owner = self._options.owner
        pods = vouched_pods(self.client, record, owner) if owner is not None else []
        if not is_vouched(self._body(self._security or "baseline", None)["spec"], pods):
            reason = "is not what its Jobs were given" if pods else "is known from no Job: they are gone"
            raise EngineError(
                f"the storage of {record.name} cannot be reached: what its record says about it {reason}",
                hint="mount the storage in a pod of your own to read it",
            )

    def __enter__(self) -> HelperPod:
        self._sweep()
        try:
            self._create()
            self._wait()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.client.delete(POD, self.pod, namespace=self.namespace, grace_s=0)

    def _create(self) -> None:
        node = self._node_in_use()
        try:
            self.client.create(self._body(self._security or "baseline", node))
        except Forbidden as error:
            if self._security is not None or "PodSecurity" not in error.message:
                raise
            self.client.create(self._body("restricted", node))

    def _body(self, security: Security, node: str | None) -> Object:
        labels = {names.MANAGED_BY: "longboat", names.KIND: "helper"}
        if self._options.run:
            labels[names.RUN] = self._options.run
        meta: Object = {"name": self.pod, "namespace": self.namespace, "labels": labels}
        if self._options.run and self._options.owner:
            meta["ownerReferences"] = [
                {"apiVersion": "v1", "kind": "ConfigMap", "name": self._options.run, "uid": self._options.owner}
            ]
        spec = pod_spec(self._image, security, self._mounts)
        if self._options.pull_secrets:
            spec["imagePullSecrets"] = [{"name": name} for name in self._options.pull_secrets]
        if self._options.service_account:
            spec["serviceAccountName"] = self._options.service_account
        if node is not None:
            field = {"key": "metadata.name", "operator": "In", "values": [node]}
            terms = {"nodeSelectorTerms": [{"matchFields": [field]}]}
            spec["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}

    def _node_in_use(self) -> str | None:
        """Node where a claim is mounted now: a ReadWriteOnce claim can be mounted on no other."""
        claims = self._mounts.claims
        if not claims:
            return None
        for pod in self.client.list(POD, namespace=self.namespace, fields="status.phase=Running").items:
            if claims & claims_of(pod):
                return str(pod["spec"].get("nodeName") or "") or None
        return None

    def _wait(self) -> None:
        began = time.monotonic()
        pause = 0.05
        while True:
            pod = self.client.get(POD, self.pod, namespace=self.namespace)
            waited = time.monotonic() - began
            if is_running(pod):
                return
            trouble = trouble_of(pod, waited)
            if trouble:
                raise EngineError(f"the pod that reads the storage cannot start: {trouble}")
            time.sleep(pause)
            pause = min(pause * 1.5, 1.0)

    def _sweep(self) -> None:
        """Remove helper pods that ended by themselves because somebody was killed before he could remove them."""
        # "aide": what their label said before; those that an older client left may still be there.
        labels = f"{names.MANAGED_BY}=longboat,{names.KIND} in (helper,aide)"
        with contextlib.suppress(ApiError):  # a courtesy, no more
            for pod in self.client.list(
                POD, namespace=self.namespace, labels=labels, fields="status.phase!=Running"
            ).items:
                if (pod.get("status") or {}).get("phase") in ("Failed", "Succeeded"):
                    self.client.delete(POD, pod["metadata"]["name"], namespace=self.namespace, grace_s=0)


def pod_spec(image: str, security: Security, mounts: HelperMounts) -> Object:
    """A pod that sleeps. As the run's own pods: the image's user, or the restricted one."""
    container: Object = {
        "name": "main",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["python3", "-I", "-S", "-c", f"import time; time.sleep({LIFE_S})"],
        "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"cpu": "2", "memory": "512Mi"}},
        "volumeMounts": mounts.mounts,
    }
    own = container_security(security)
    if own is not None:
        container["securityContext"] = own
    return {
        "restartPolicy": "Never",
        "activeDeadlineSeconds": LIFE_S,
        "terminationGracePeriodSeconds": 1,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": pod_security(security),
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}, {"key": "amd.com/gpu", "operator": "Exists"}],
        "containers": [container],
        "volumes": mounts.volumes,
    }


def is_running(pod: Mapping[str, Any]) -> bool:
    container = container_of(pod)
    return bool(container and (container.get("state") or {}).get("running"))


def trouble_of(pod: Mapping[str, Any], waited_s: float) -> str:
    """Why it will not start, after so long; empty as long as there is hope."""
    status = pod.get("status") or {}
    if status.get("phase") in ("Failed", "Succeeded"):
        ended = ((container_of(pod) or {}).get("state") or {}).get("terminated") or {}
        return str(ended.get("message") or ended.get("reason") or status.get("message") or "it ended at once")
    waiting = ((container_of(pod) or {}).get("state") or {}).get("waiting") or {}
    reason = str(waiting.get("reason") or "")
    text = f"{reason}: {waiting.get('message') or ''}".rstrip(": ")
    if reason in HOPELESS or (reason in PULLING and waited_s > PULL_S):
        return text
    if waited_s > START_S:
        conditions = {condition.get("type"): condition for condition in status.get("conditions") or ()}
        scheduled = conditions.get("PodScheduled", {})
        unscheduled = scheduled.get("message") if scheduled.get("status") == "False" else None
        return str(unscheduled or text or f"it did not start within {START_S:.0f} s")
    return ""


def claims_of(pod: Mapping[str, Any]) -> set[str]:
    """The claims that a pod mounts."""
    volumes = (pod.get("spec") or {}).get("volumes") or ()
    sources = (volume.get("persistentVolumeClaim") for volume in volumes)
    return {str(source["claimName"]) for source in sources if source}

"""Kinds of Kubernetes objects that are used here, and their paths in the API."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import quote


class Kind(NamedTuple):
    kind: str
    api_version: str
    plural: str
    is_namespaced: bool = True

    def path(self, namespace: str | None = None, name: str | None = None, subresource: str | None = None) -> str:
        """The path of a collection, an object or a part of it. Without a namespace: of all namespaces."""
        parts = ["api" if "/" not in self.api_version else "apis", self.api_version]
        if self.is_namespaced and namespace:
            parts += ["namespaces", quote(namespace, safe="")]
        parts.append(self.plural)
        if name:
            parts.append(quote(name, safe=""))
        if subresource:
            parts.append(subresource)
        return "/" + "/".join(parts)


CONFIG_MAP = Kind("ConfigMap", "v1", "configmaps")
SECRET = Kind("Secret", "v1", "secrets")
SERVICE = Kind("Service", "v1", "services")
SERVICE_ACCOUNT = Kind("ServiceAccount", "v1", "serviceaccounts")
POD = Kind("Pod", "v1", "pods")
NODE = Kind("Node", "v1", "nodes", False)
NAMESPACE = Kind("Namespace", "v1", "namespaces", False)
EVENT = Kind("Event", "v1", "events")
PVC = Kind("PersistentVolumeClaim", "v1", "persistentvolumeclaims")
VOLUME = Kind("PersistentVolume", "v1", "persistentvolumes", False)
QUOTA = Kind("ResourceQuota", "v1", "resourcequotas")
LIMIT_RANGE = Kind("LimitRange", "v1", "limitranges")
JOB = Kind("Job", "batch/v1", "jobs")
CRON_JOB = Kind("CronJob", "batch/v1", "cronjobs")
JOBSET = Kind("JobSet", "jobset.x-k8s.io/v1alpha2", "jobsets")
LOCAL_QUEUE = Kind("LocalQueue", "kueue.x-k8s.io/v1beta2", "localqueues")
CLUSTER_QUEUE = Kind("ClusterQueue", "kueue.x-k8s.io/v1beta2", "clusterqueues", False)
COHORT = Kind("Cohort", "kueue.x-k8s.io/v1beta2", "cohorts", False)
WORKLOAD = Kind("Workload", "kueue.x-k8s.io/v1beta2", "workloads")
LEASE = Kind("Lease", "coordination.k8s.io/v1", "leases")
PDB = Kind("PodDisruptionBudget", "policy/v1", "poddisruptionbudgets")
DAEMON_SET = Kind("DaemonSet", "apps/v1", "daemonsets")
DEPLOYMENT = Kind("Deployment", "apps/v1", "deployments")
STATEFUL_SET = Kind("StatefulSet", "apps/v1", "statefulsets")
STORAGE_CLASS = Kind("StorageClass", "storage.k8s.io/v1", "storageclasses", False)
PRIORITY_CLASS = Kind("PriorityClass", "scheduling.k8s.io/v1", "priorityclasses", False)
INGRESS = Kind("Ingress", "networking.k8s.io/v1", "ingresses")
HPA = Kind("HorizontalPodAutoscaler", "autoscaling/v2", "horizontalpodautoscalers")
NETWORK_POLICY = Kind("NetworkPolicy", "networking.k8s.io/v1", "networkpolicies")
ROLE = Kind("Role", "rbac.authorization.k8s.io/v1", "roles")
ROLE_BINDING = Kind("RoleBinding", "rbac.authorization.k8s.io/v1", "rolebindings")
CLUSTER_ROLE = Kind("ClusterRole", "rbac.authorization.k8s.io/v1", "clusterroles", False)
CLUSTER_ROLE_BINDING = Kind("ClusterRoleBinding", "rbac.authorization.k8s.io/v1", "clusterrolebindings", False)
DEVICE_CLASS = Kind("DeviceClass", "resource.k8s.io/v1", "deviceclasses", False)
CLAIM = Kind("ResourceClaim", "resource.k8s.io/v1", "resourceclaims")
RESOURCE_SLICE = Kind("ResourceSlice", "resource.k8s.io/v1", "resourceslices", False)
CLAIM_TEMPLATE = Kind("ResourceClaimTemplate", "resource.k8s.io/v1", "resourceclaimtemplates")
RUNTIME_CLASS = Kind("RuntimeClass", "node.k8s.io/v1", "runtimeclasses", False)
CRD = Kind("CustomResourceDefinition", "apiextensions.k8s.io/v1", "customresourcedefinitions", False)
API_SERVICE = Kind("APIService", "apiregistration.k8s.io/v1", "apiservices", False)
MUTATING_WEBHOOKS = Kind(
    "MutatingWebhookConfiguration", "admissionregistration.k8s.io/v1", "mutatingwebhookconfigurations", False
)
VALIDATING_WEBHOOKS = Kind(
    "ValidatingWebhookConfiguration", "admissionregistration.k8s.io/v1", "validatingwebhookconfigurations", False
)
ACCESS_REVIEW = Kind("SelfSubjectAccessReview", "authorization.k8s.io/v1", "selfsubjectaccessreviews", False)

KINDS = {kind.kind: kind for kind in list(globals().values()) if isinstance(kind, Kind)}


def kind_of(body: dict[str, object]) -> Kind:
    """The kind of an object as a dict. Its own apiVersion counts, so that an older one can be spoken too."""
    kind = KINDS[str(body["kind"])]
    return kind._replace(api_version=str(body.get("apiVersion", kind.api_version)))

"""What simulated nodes and pods do over time, as KWOK's Stage objects. Pure data.

Chosen by annotations, all named `testbed.longboat.test/...`, times as `20s` or `1m30s`:

pods   start-after   wait so long before running (a slow image)
       run-for       then end; without it a pod runs until it is deleted
       exit-code     how it ends; not 0 is a failure. Alone, it ends at once
       stay          `pending`: bound, and never started; `image-pull-back-off`: the image cannot be had
nodes  ready-after   not Ready until then
       gpus-after    Ready, and its GPUs (annotation `gpus`) appear only then
       lost-after    its kubelet falls silent then: Ready becomes Unknown
       vanish-after  the node object is deleted then
"""

from __future__ import annotations

from typing import Any

PREFIX = "testbed.longboat.test/"
GPU = "nvidia.com/gpu"
Stage = dict[str, Any]

_ALIVE = {"key": ".metadata.deletionTimestamp", "operator": "DoesNotExist"}
_READY = '.status.conditions.[] | select( .type == "Ready" ) | .status'

_POD_START = """
{{ $now := Now }}
conditions:
{{ range $type := list "PodReadyToStartContainers" "Initialized" "ContainersReady" "Ready" }}
- {type: {{ $type }}, status: "True", lastTransitionTime: {{ $now | Quote }}}
{{ end }}
{{ with .spec.initContainers }}
initContainerStatuses:
{{ range . }}
- name: {{ .name | Quote }}
  image: {{ .image | Quote }}
  imageID: ""
  ready: true
  restartCount: 0
  state: {terminated: {exitCode: 0, reason: Completed, startedAt: {{ $now | Quote }}, finishedAt: {{ $now | Quote }}}}
{{ end }}
{{ end }}
containerStatuses:
{{ range .spec.containers }}
- name: {{ .name | Quote }}
  image: {{ .image | Quote }}
  imageID: ""
  ready: true
  started: true
  restartCount: 0
  state: {running: {startedAt: {{ $now | Quote }}}}
{{ end }}
hostIP: {{ NodeIPWith .spec.nodeName | Quote }}
podIP: {{ PodIPWith .spec.nodeName (or .spec.hostNetwork false) (or .metadata.uid "") (or .metadata.name "") (or .metadata.namespace "") | Quote }}
phase: Running
startTime: {{ $now | Quote }}
"""  # noqa: E501

_POD_END = """
{{ $now := Now }}
{{ $root := . }}
{{ $code := or (index (or .metadata.annotations dict) "testbed.longboat.test/exit-code") "0" }}
conditions:
{{ range $type := list "ContainersReady" "Ready" }}
- {type: {{ $type }}, status: "False", reason: {{ if eq $code "0" }}PodCompleted{{ else }}PodFailed{{ end }}, lastTransitionTime: {{ $now | Quote }}}
{{ end }}
containerStatuses:
{{ range $index, $item := .spec.containers }}
{{ $before := index $root.status.containerStatuses $index }}
- name: {{ $item.name | Quote }}
  image: {{ $item.image | Quote }}
  imageID: ""
  ready: false
  started: false
  restartCount: 0
  state:
    terminated:
      exitCode: {{ $code }}
      reason: {{ if eq $code "0" }}Completed{{ else }}Error{{ end }}
      startedAt: {{ $before.state.running.startedAt | Quote }}
      finishedAt: {{ $now | Quote }}
{{ end }}
phase: {{ if eq $code "0" }}Succeeded{{ else }}Failed{{ end }}
"""  # noqa: E501

_POD_NO_IMAGE = """
{{ $now := Now }}
conditions:
- {type: Initialized, status: "True", lastTransitionTime: {{ $now | Quote }}}
{{ range $type := list "ContainersReady" "Ready" }}
- {type: {{ $type }}, status: "False", reason: ContainersNotReady, lastTransitionTime: {{ $now | Quote }}}
{{ end }}
containerStatuses:
{{ range .spec.containers }}
- name: {{ .name | Quote }}
  image: {{ .image | Quote }}
  imageID: ""
  ready: false
  started: false
  restartCount: 0
  state:
    waiting:
      reason: ImagePullBackOff
      message: {{ printf "Back-off pulling image %q" .image | Quote }}
{{ end }}
hostIP: {{ NodeIPWith .spec.nodeName | Quote }}
podIP: {{ PodIPWith .spec.nodeName (or .spec.hostNetwork false) (or .metadata.uid "") (or .metadata.name "") (or .metadata.namespace "") | Quote }}
phase: Pending
startTime: {{ $now | Quote }}
"""  # noqa: E501

_NODE_READY = """
{{ $now := Now }}
conditions:
{{ range NodeConditions }}
- type: {{ .type | Quote }}
  status: {{ .status | Quote }}
  reason: {{ .reason | Quote }}
  message: {{ .message | Quote }}
  lastHeartbeatTime: {{ $now | Quote }}
  lastTransitionTime: {{ $now | Quote }}
{{ end }}
phase: Running
"""

_NODE_GPUS = """
{{ $gpus := index .metadata.annotations "testbed.longboat.test/gpus" }}
capacity: {nvidia.com/gpu: {{ $gpus | Quote }}}
allocatable: {nvidia.com/gpu: {{ $gpus | Quote }}}
"""

_NODE_LOST = """
{{ $now := Now }}
conditions:
{{ range NodeConditions }}
- type: {{ .type | Quote }}
  status: Unknown
  reason: NodeStatusUnknown
  message: Kubelet stopped posting node status.
  lastTransitionTime: {{ $now | Quote }}
{{ end }}
phase: Terminated
"""


def annotation(name: str) -> str:
    return f'.metadata.annotations["{PREFIX}{name}"]'


def exists(key: str) -> dict[str, Any]:
    return {"key": key, "operator": "Exists"}


def absent(key: str) -> dict[str, Any]:
    return {"key": key, "operator": "DoesNotExist"}


def among(key: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": "In", "values": list(values)}


def not_among(key: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": "NotIn", "values": list(values)}


def stage(name: str, kind: str, when: list[dict[str, Any]], then: dict[str, Any], after: str | None = None) -> Stage:
    """One step: objects of this kind, once they look like `when`, become `then`, after the time in an annotation."""
    spec: dict[str, Any] = {
        "resourceRef": {"apiGroup": "v1", "kind": kind},
        "selector": {"matchExpressions": when},
        "next": then,
        # A special behaviour beats the ordinary one that matches as well.
        "weight": 1,
    }
    if after:
        spec["delay"] = {"durationMilliseconds": 0, "durationFrom": {"expressionFrom": annotation(after)}}
    meta = {"name": f"{kind.lower()}-{name}"}
    return {"apiVersion": "kwok.x-k8s.io/v1alpha1", "kind": "Stage", "metadata": meta, "spec": spec}


def status(template: str) -> dict[str, Any]:
    return {"statusTemplate": template}


def event(kind: str, reason: str, message: str) -> dict[str, Any]:
    return {"event": {"type": kind, "reason": reason, "message": message}}


def pod_stages() -> list[Stage]:
    waiting = [_ALIVE, absent(".status.podIP")]
    running = [_ALIVE, among(".status.phase", "Running")]
    started = {**status(_POD_START), **event("Normal", "Started", "Started containers")}
    no_image = {**status(_POD_NO_IMAGE), **event("Warning", "Failed", "Error: ImagePullBackOff")}
    stay = annotation("stay")
    return [
        stage("start", "Pod", [*waiting, absent(stay)], started, after="start-after"),
        stage("no-image", "Pod", [*waiting, among(stay, "image-pull-back-off")], no_image),
        stage("end", "Pod", [*running, exists(annotation("run-for"))], status(_POD_END), after="run-for"),
        stage(
            "end-at-once",
            "Pod",
            [*running, absent(annotation("run-for")), exists(annotation("exit-code"))],
            status(_POD_END),
        ),
        stage(
            "delete",
            "Pod",
            [exists(".metadata.deletionTimestamp"), absent(".metadata.finalizers")],
            {"delete": True},
        ),
    ]


def node_stages() -> list[Stage]:
    ready = [_ALIVE, among(_READY, "True")]
    no_gpus = absent(f'.status.capacity["{GPU}"]')
    return [
        stage(
            "ready",
            "Node",
            [_ALIVE, not_among(_READY, "True"), not_among(".status.phase", "Terminated")],
            status(_NODE_READY),
            after="ready-after",
        ),
        stage(
            "gpus", "Node", [*ready, exists(annotation("gpus-after")), no_gpus], status(_NODE_GPUS), after="gpus-after"
        ),
        stage("lost", "Node", [*ready, exists(annotation("lost-after"))], status(_NODE_LOST), after="lost-after"),
        stage("vanish", "Node", [*ready, exists(annotation("vanish-after"))], {"delete": True}, after="vanish-after"),
    ]


def all_stages() -> list[Stage]:
    return [*node_stages(), *pod_stages()]

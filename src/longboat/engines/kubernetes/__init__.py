"""The Kubernetes engine. docs/contributing/kubernetes.md is its contract: objects, names, the pod, who drives a run."""

"""The Kubernetes engine. docs/contributing/kubernetes.md is its contract: objects, names, the pod, who drives a run.

What each folder may import is held by the layers in pyproject.toml; no other engine is among it. Modules beside the
folders may import `engines.lifecycle`, `engines.shared`, `kubeapi`, `fitting`, `metrics`, `specs`, `storage`.
"""

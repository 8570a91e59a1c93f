"""The Kubernetes engine. docs/contributing/kubernetes.md is its contract: objects, names, the pod, who drives a run.

Here are the engine itself and the values of all its folders; each folder says what it may import.
"""

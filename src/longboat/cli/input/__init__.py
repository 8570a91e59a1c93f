"""From words and flags to values: options, targets, job and pools files, the engine that is meant.

No result is printed here. May import `output`, `sdk`, `engines`, `autoscaler`, `kubeapi`, `multicluster`, `specs`.
"""

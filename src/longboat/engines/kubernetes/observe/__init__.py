"""Objects of a run read into one value: records, Jobs, pods, nodes, termination messages, progress.

What to do about it is decided in `reconcile`. May import `manifests`, `kubeapi` and the plain words of `explain`.
"""

"""What a cluster has and what this user may do there: features, permissions, GPU resources.

Whether a job fits is `preflight`'s. May import `install` (where its namespace is), `manifests`, `fitting`, `kubeapi`.
"""

"""What a cluster has and what this user may do there: features, permissions, GPU resources.

Whether a job fits is `preflight`'s. May import `kubeapi`.
"""

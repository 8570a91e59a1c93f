"""Ways to a machine: over SSH, or this one. A connection runs scripts; it knows nothing of Kubernetes.

The only folder that may import asyncssh. May import `clusters.spec` and `core`.
"""

"""The user's code as a content-addressed snapshot: what belongs to it, its hash, packing and safe unpacking.

Its way into a cluster is the Kubernetes engine's. May import `core`.
"""

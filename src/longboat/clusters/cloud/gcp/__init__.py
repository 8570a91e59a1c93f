"""Clusters on Google Cloud: the request that makes a GKE cluster with its pools, for people who send it by their tools.

All of it is pure. Sending it does not belong here yet. May import `clouds`, `specs.fields`, `specs.yaml`.
"""

"""Clusters on Azure: one ARM template with AKS and its pools, for people who deploy it by their own tools.

All of it is pure. Deploying it does not belong here yet. May import `specs.fields`, `specs.yaml`.
"""

"""Clusters on Azure: one ARM template with AKS and its pools; deploying and following it, its removal.

`template`, `aks_view` and `decide` are pure. Which fields a cluster file has is in `fields`. May import `clouds`,
`clusters.cloud.aws` for the events of a deployment, `specs.fields`, `specs.yaml`.
"""

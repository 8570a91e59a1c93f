"""Clusters on Google Cloud: requests that make a GKE cluster with its pools; sending and following them, its removal.

`request`, `cluster_view` and `decide` are pure. Which fields a cluster file has is in `fields`. May import `clouds`,
`clusters.cloud.aws` for the events of a deployment, `specs.fields`, `specs.yaml`.
"""

"""EFS for a cluster on AWS: the network of its nodes, a file system, a mount target in every zone.

Not the claim in the cluster, which is `engines.kubernetes.exec.static_volumes`. May import `clouds`,
`clusters.cloud.aws.templates`.
"""

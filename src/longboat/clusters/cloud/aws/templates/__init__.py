"""The CloudFormation template of a cluster, part by part: network, EKS and roles, node groups, file system.

All of it is pure: a cluster file's values to text. Deploying it does not belong here. May import
`engines.kubernetes.install`.
"""

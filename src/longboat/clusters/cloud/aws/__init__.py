"""Clusters on AWS: one CloudFormation stack with network, EKS, node groups and EFS; its deployment and its removal.

`template` and what it is made of are pure. Which fields a cluster file has is in `fields`. May import `clouds`,
`specs.fields`, `specs.yaml`.
"""

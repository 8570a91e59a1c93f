"""Clusters in a cloud: a cluster file of pools of machines, and what the plan costs.

`spec` and `fields` hold what every cloud has; a folder per cloud turns it into that cloud's own template, deploys and
removes it. Hosts reached over SSH do not belong here. May import `clouds`, `clusters.fields`,
`engines.kubernetes.install` for the names of the autoscaler, `engines.shared` for where clusters are remembered,
`fitting.model`, `kubeapi`, `specs`.
"""

"""Observing what checks judge: this machine, the kubeconfig, the cluster's objects, hosts over SSH.

Changes nothing. Not here: pods that are made to look around (`doctor.probes`).
May import `doctor.facts`, `doctor.findings`, `autoscaler`, `clusters`, `engines`, `kubeapi`, `core`.
"""

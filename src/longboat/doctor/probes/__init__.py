"""Pods that the doctor makes to look around inside of the cluster: network, storage, GPUs, one step of a training.

They ask for little, end by themselves, and are removed whatever happens. May import `engines`, `kubeapi`, `core`,
`doctor.facts`, `doctor.findings`.
"""

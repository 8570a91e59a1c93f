"""Sweeps in a cluster: their record is a ConfigMap, their trials are made of what the submitter created there.

Here: the objects of a sweep and the records of its trials (`sweep_objects`, pure), reading and writing the ConfigMap
(`store`), creating a sweep (`creation`), its trials (`trial_runs`), and driving all sweeps (`controller`). Not how
trials are chosen, which is in `sweeps`. May import `engines.kubernetes`, `engines.shared`, `engines`, `kubeapi`,
`metrics`, `sweeps`.
"""

"""The objects of a run as dicts: record, Secrets, Service, Jobs or JobSet, pod template, volumes. Pure.

Nothing here talks to a cluster (`creation`). May import `bundles`, `storage`, `fitting.model`, `engines.shared`, kinds
of `kubeapi`, and the records and names of the engine.
"""

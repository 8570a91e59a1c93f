"""The objects of a run as dicts: record, Secrets, Service, Jobs or JobSet, pod template, volumes. Pure.

Nothing here talks to a cluster. May import `core`, `storage` and the records and names of the engine.
"""

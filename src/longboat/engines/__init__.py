"""Engines: where runs run. `engine.py` holds the promises, `refusals.py` the words of a job that cannot run, one folder
per engine keeps the promises, `shared` is for all.

No engine imports another one. May import `core`, `specs`, `bundles`, `storage`, `fitting`, `kubeapi`, `metrics`.
"""

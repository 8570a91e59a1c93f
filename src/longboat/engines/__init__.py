"""Engines: where runs run. `engine.py` holds the promises, one folder per engine keeps them, `shared` is for all.

No engine imports another one. May import `core`, `specs`, `bundles`, `storage`, `fitting`, `kubeapi`.
"""

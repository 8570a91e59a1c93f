"""A run from its first attempt to its end: observe, decide (pure), apply; the controller that does it for all runs.

Admission of gangs is in `gate`. May import `manifests`, `gate`, `explain`, `kubeapi`.
"""

"""Everything that talks to a Kubernetes API server: the client, kinds, errors, watches, Leases, kubeconfig.

Nothing of runs, gangs or machines belongs here. May import `core` only; engines, autoscaler and clusters use it.
"""

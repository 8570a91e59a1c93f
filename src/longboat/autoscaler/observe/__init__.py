"""The cluster and the providers, read into a Snapshot: watches, gangs, budgets, instances, orders.

Nothing is decided here. May import `model`, `providers`, `kubeapi`.
"""

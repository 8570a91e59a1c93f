"""The cluster and the providers, read into a Snapshot: watches, gangs, budgets, instances, orders.

Nothing is decided here. May import `providers`, `model`; `fitting` for its values, `kubeapi`.
"""

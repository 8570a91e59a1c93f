"""Node providers, who make and delete machines: the interface (`provider`), one module for each kind, a registry.

When they are asked is `observe`'s and `act`'s. May import `model`; `fitting` for its values, `kubeapi`.
"""

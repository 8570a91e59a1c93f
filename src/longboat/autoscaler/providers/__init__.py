"""Who makes and deletes machines: the interface (`provider`) and one module for each kind.

Which machines are wanted is decided elsewhere. May import `model`, `kubeapi`, `fitting`, `specs`.
"""

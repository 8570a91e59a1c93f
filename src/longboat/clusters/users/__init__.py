"""People who use a cluster: accounts with rights in a namespace, their kubeconfigs, and taking both away.

Not the administrator's own kubeconfig (`kubeconfig_file`). May import `kubeapi`, `engines`.
"""

"""Add-ons of a cluster: what `up` installs into it once its nodes are ready, and `down` removes first.

A module for each add-on gives its objects; `install` applies them. Not here: what is done on the hosts themselves.
May import `clusters.spec`, `clusters.provisioner`, `kubeapi`, `engines.kubernetes`, and `core`.
"""

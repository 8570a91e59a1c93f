"""The provisioner of volumes: the program of the add-on storage, which runs in the cluster and serves claims.

`volumes` decides, `serve` watches and acts. Not its manifests.
May import `clusters.spec`, `kubeapi`, `engines.shared`, and `core`.
"""

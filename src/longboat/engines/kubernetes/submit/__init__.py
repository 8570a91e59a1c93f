"""From a job to a run in a cluster: what the cluster offers, preflight, the code's upload, creation of the objects.

Not what happens afterwards (`reconcile`). May import `reconcile`, `gate`, `explain`, `exec`, `creation`, `manifests`,
`kubeapi`, `engines.lifecycle`, `engines.shared`, `fitting`, `bundles`, `storage`.
"""

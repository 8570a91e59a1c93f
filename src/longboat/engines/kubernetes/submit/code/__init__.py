"""The bundle of a run on its way into the cluster: packs of files, the objects that carry them, the upload.

Making the bundle is `bundles`'. May import `exec`, `manifests`, `engines.shared`, `bundles`, `storage`, `kubeapi`.
"""

"""What `longboat install` puts into a cluster and takes out again: controller, autoscaler, their rights.

Not what they do. May import `record_store`, `manifests`, `kubeapi`.
"""

"""Services in a cluster: a Deployment and a Service, of the pod template that a run with the same job would have.

Replicas and updates are Kubernetes' own: nothing of Longboat has to run for them. Following a run is the controller's
(`controller`). May import `engines`, `kubeapi`, `storage`.
"""

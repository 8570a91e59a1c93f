"""What the autoscaler tells: metrics, events, webhook, status ConfigMap, log lines, plans as JSON.

It changes no machine. May import `model`, `kubeapi`.
"""

"""What the autoscaler tells: metrics, events, webhook, status ConfigMap, log lines, plans as JSON.

It changes no machine. May import `observe` (names of what is written), `model`; `fitting`, `kubeapi`, `metrics`, health
checks of `engines`.
"""

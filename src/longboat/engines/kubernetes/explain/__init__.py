"""Why a run waits or failed, in words: pods, nodes, images, quotas, queues, network policies.

Reads and words; it changes nothing. May import `status`, `logs`, `observe`, `manifests`, `kubeapi`, `fitting`,
`engines.shared`.
"""

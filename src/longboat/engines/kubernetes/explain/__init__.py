"""Why a run waits or failed, in words: pods, nodes, images, quotas, queues, network policies.

Reads and words; it changes nothing. May import `kubeapi` and the engine's values.
"""

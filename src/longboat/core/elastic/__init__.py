"""Elastic gangs: jobs whose number of nodes is a range.

Values and pure rules only. Which size a run gets is decided where resources are: by the queue of this machine
(`engines.local.queue.sizes`) and by the gate of a cluster (`engines.kubernetes.gate.sizes`).
"""

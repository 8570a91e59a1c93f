"""The gang-aware node autoscaler: observe -> Snapshot -> decide (pure) -> Plan -> act, turn after turn.

Not the commands that start and show it (`cli.admin`), not the gate. May import `core`, `specs`, `fitting`, `kubeapi`.
"""

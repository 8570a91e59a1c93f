"""The gang-aware node autoscaler: observe -> Snapshot -> decide (pure) -> Plan -> act, turn after turn.

`loop` takes turns, `service` runs it behind leader election. Not the commands that start and show it (`cli.admin`), not
the gate. May import `core`, `specs`, `fitting`, `kubeapi`, health checks of `engines`.
"""

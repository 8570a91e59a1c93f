"""The gang-aware node autoscaler: observe -> Snapshot -> decide (pure) -> Plan -> act."""

"""What hosts are like: one script reads every fact of a host in one round trip; problems follow from facts (pure).

Nothing here changes a host. May import `clusters.spec`, `clusters.hosts`, `core`.
"""

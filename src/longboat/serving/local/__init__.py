"""Services of this machine: files, the detached supervisor, replicas as runs of the embedded engine.

What a replica answers and what its job is stands in `serving` itself. May import `bundles`, `engines`, `storage`,
`serving.proxy`.
"""

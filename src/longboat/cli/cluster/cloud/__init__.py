"""Commands of `longboat cluster` for clusters in a cloud: render, up, status, down, token, permissions, selftest.

Parsing and showing; the work is in `clusters.cloud`. Clusters of hosts do not belong here. A cloud's library is loaded
only by commands that call the cloud. May import `cli.output`, `clouds`, `clusters`, `engines.shared`, `kubeapi`.
"""

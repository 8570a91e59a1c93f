"""Commands of `longboat cluster` about who gets in: your kubeconfig, and people with a namespace.

May import `cli.cluster`, `input`, `output`, `clouds.aws`, `clusters`, `engines`, `kubeapi`, `specs`, `core`.
"""

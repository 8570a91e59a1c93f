"""HTTP to one API server: sockets, TLS, proxies, credentials, and when a request is repeated.

No kinds and no objects. May import `core` and the errors of `kubeapi`.
"""

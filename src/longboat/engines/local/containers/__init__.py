"""Containers of this machine through podman or docker: which of the two, images, the command of a node's container.

Not what runs inside, which is the launcher as everywhere. May import `submit`, `engines.shared`, `specs`, the records
of the engine and the nodes of an attempt (`supervise`).
"""

"""Containers of this machine through podman or docker: which of the two, images, the command of a node's container.

Not what runs inside, which is the launcher as everywhere. May import `queue`, `engines.shared`, `specs` and the records
of the engine.
"""

"""Ranks that torchrun or mpirun start: stand-ins for workers, the agent and server for remote starts.

The launcher's own start of ranks is in `ranks`. May import `node`, `ranks`, and the handshake of `gang`.
"""

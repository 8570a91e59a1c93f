"""Streams through the API server: exec, the WebSocket under it, the user's terminal.

Not logs and watches, which are plain HTTP (`client`, `watch`). May import `kubeapi`.
"""

"""Streams through the API server: exec, port-forward, the WebSocket under them, the user's terminal.

Not logs and watches, which are plain HTTP (`client`, `watch`). May import `kubeapi`.
"""

"""What only a pod needs: gang file, code, data, checkpoints in a store, last words, control by exec.

The embedded engine does these itself. May import `node`, `ranks`, `sampling`, `vendored`, `location`.
"""

"""The launcher: first process of every node of a run. Standard library only, Python >= 3.8, imports nothing of ours.

`node_launcher` and `pod_launcher` start it, on this machine and in a pod; the folders hold its parts, lowest first:
`node`, `ranks`, `gang`, `starters` and `pod`. What travels with it from elsewhere is listed in `vendored`.
"""

"""Workbench: what a person opens beside trainings: TensorBoard, a notebook, a shell. Each is a run like any other.

`jobs` makes the Job (pure), `sessions` finds the server of a run, `forwarding` brings a port of a pod to this machine,
`edits` brings changed files back, `stores` says which object stores a board reads. The server itself is in
`launcher/workbench`. Not here: options and output (`cli`). May import `engines`, `kubeapi`, `storage`, `core`.
"""

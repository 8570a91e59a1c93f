"""Objects of a run read into one value: pods, Jobs, termination messages, progress.

Nothing is decided here. May import `kubeapi` and the engine's values.
"""

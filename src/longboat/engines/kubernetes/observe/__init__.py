"""A run as it is: its record, Jobs, pods and nodes read into one value; termination messages, progress, lost nodes.

What to do about it is decided in `reconcile`. May import `record_store`, `kubeapi`, `engines.lifecycle`,
`engines.shared`, `fitting.model`, `metrics`, and the words that `explain` has for single objects.
"""

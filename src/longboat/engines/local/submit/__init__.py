"""From a job to a run folder on this machine: preflight, the plan, the record.

What happens afterwards is in `supervise`. May import `queue`, `containers`, `engines.lifecycle`, `engines.shared`,
`bundles`, `storage`, the records of the engine and, to show them in a dry run, the folders of an attempt (`supervise`).
"""

"""From a job to a run folder on this machine: preflight, the plan, the order of the queue, what the machine has.

What happens afterwards is in `supervise`. May import `containers`, `engines.lifecycle`, `engines.shared`, `bundles`,
`storage`, the records of the engine and, to show them in a dry run, the folders of an attempt (`supervise`).
"""

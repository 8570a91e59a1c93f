"""Commands that read or write job files: run, check, init, import, schema.

What becomes of a run is in `runs`. May import `input`, `output`, `sdk`, `engines`, `multicluster`, `specs`,
`clusters.cloud`, `clusters.fields`.
"""

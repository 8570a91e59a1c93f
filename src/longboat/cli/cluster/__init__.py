"""Commands of `longboat cluster`: machines become a cluster, and get back to what they were.

Parsing and showing; the work is in `clusters`. May import `input`, `output`, `bundles.source`, `clusters`, `engines`,
`kubeapi`, `specs`.
"""

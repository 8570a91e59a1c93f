"""A run from its first attempt to its end: decide (pure), apply; the controller that does it for all runs.

Admission of gangs is in `gate`, what is decided upon in `observe`. May import `gate`, `status`, `logs`, `exec`,
`creation`, `observe`, `manifests`, `kubeapi`, `engines.lifecycle`, `engines.shared`, `metrics`,
`storage`.
"""

"""Gang admission: which suspended runs are started, which wait and for what, which are put back.

Not Kueue's admission, which is only explained (`explain.kueue`). May import `explain`, `observe`, `manifests`,
`kubeapi`, `fitting`, `metrics`, `engines.lifecycle`, `engines.shared`.
"""

"""Kubernetes clusters made of bare machines, over SSH or of this one: observe -> plan (pure) -> apply, and back.

`spec` is what is wanted, `hosts` reaches machines, `observe` reads them, `plan` decides, `apply` changes them and
undoes it. Nothing of runs belongs here. May import `core`, `specs`, `fitting` values, `kubeapi`, `clouds`, `engines`.
"""

"""What pages show, one module for each kind of page: engines asked, their values as plain data. No HTTP here.

May import `web`, `autoscaler`, `clusters`, `comparison`, `engines`, `fitting`, `kubeapi`, `metrics`, `multicluster`,
`sdk`, `serving`, `simulator`, `specs`, `sweeps`, `workbench`.
"""

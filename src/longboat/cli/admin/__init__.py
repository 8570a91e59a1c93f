"""Commands for those who run a cluster: install, controller, autoscaler, simulate, the provisioner of volumes.

Parsing and showing; the work is in the engine, the autoscaler, the simulator and clusters. May import `input`,
`output`, `autoscaler`, `simulator`, `clusters`, `engines`, `kubeapi`, `serving.kubernetes`, `specs`,
`sweeps.kubernetes`, `web`.
"""

"""Commands for those who run a cluster: install, controller, autoscaler, simulate.

Parsing and showing; the work is in the engine, the autoscaler and the simulator. May import `input`, `output`,
`autoscaler`, `simulator`, `engines`, `kubeapi`, `specs`.
"""

"""Several clusters at once: which of them a run goes to, where it moves if it waits, what is free and what it costs.

Pure: `decide` (the choice), `failover_steps` (when a run moves), `costs`, `prices`. `ask` questions all places in
parallel, `failover` carries a move out, `inventory` lists GPUs, `spending` reads what runs and pools have cost. What
one cluster would do with a job is its engine's outlook; opening engines by their names is in `sdk`.
May import `clouds`, `engines`, `fitting`, `kubeapi`, `metrics`, `core`.
"""

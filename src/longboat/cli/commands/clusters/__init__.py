"""Commands over several clusters at once: `gpus`, `cost`. What they ask and decide is in `multicluster`.

May import `input`, `output`, `sdk`, `multicluster`, `engines.lifecycle`.
"""

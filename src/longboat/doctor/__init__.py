"""Doctor: is everything there that runs need, layer by layer, and what mends it? `longboat doctor`.

Facts are observed side by side (`observe`), then each check judges them alone (`checks`, pure); `catalog` lists them.
Not here: showing the findings (`cli`). May import `autoscaler`, `clusters`, `engines`, `fitting`, `kubeapi`, `core`.
"""

"""Services: servers of a run's checkpoint behind one address, on this machine and in clusters.

What a replica is and when it may be asked belongs here; the proxy and each engine's part have folders of their own. How
runs are started and ended is not decided here. `golden.py` and `probe.py` also travel with the launcher: standard
library only and Python >= 3.8. May import `core`, `engines`, `engines.shared`, `storage` and `storage.inventory`.
"""

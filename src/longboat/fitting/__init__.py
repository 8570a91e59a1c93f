"""Which pods fit where: quantities, the shapes of pods and nodes, why one does not fit, packing of gangs. Pure.

One answer for the gate, preflight, explanations, the autoscaler and the simulator. It knows no API and no clock.
May import `core`.
"""

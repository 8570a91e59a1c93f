"""The provider `gcp`: managed instance groups of GKE's node pools. `errors`, `groups` and `machines` are pure.

When a provider is asked is `observe`'s and `act`'s. May import `model`, `clouds`; `fitting` for its values.
"""

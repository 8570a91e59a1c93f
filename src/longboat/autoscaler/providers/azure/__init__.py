"""The provider `azure`: virtual machine scale sets of AKS's pools, or one's own.

`errors`, `machines` and `scale_sets` are pure. When a provider is asked is `observe`'s and `act`'s.

May import `model`, `clouds`; `fitting` for its values.
"""

"""Machines of AWS: Auto Scaling groups, those of EKS's managed node groups too, by botocore.

`groups` and `machines` read AWS's answers (pure), `provider` asks. Making groups and clusters does not belong here. May
import `model`, `clouds`, `fitting.model`.
"""

"""What pods and containers of this machine have in common: the launcher as one file, errors of images.

Nothing that speaks to a cluster or to a program that runs containers. Imports nothing of the engines.
"""

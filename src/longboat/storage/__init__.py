"""Volumes, data import, checkpoints: what outlives a run."""

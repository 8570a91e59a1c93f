"""Elastic jobs of the simulated world. Not what a job is (`simulator.entities`), nor how the gate sizes it."""

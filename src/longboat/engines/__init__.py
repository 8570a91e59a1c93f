"""Engines: where runs run. `engine.py` holds the promises, one folder per engine keeps them."""

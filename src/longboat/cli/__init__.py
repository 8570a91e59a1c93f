"""Parsing and showing. No decision is made here."""

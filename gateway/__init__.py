"""Turnout's data plane. One request's way: `flow.py`, then the packages in the order it calls them."""

__version__ = "0.3.0"

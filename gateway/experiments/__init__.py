"""Splits of a route's traffic: sticky assignment now; exposure, statistics and promotion build on it."""

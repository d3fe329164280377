"""What routing costs and what it is worth: `python -m benchmarks.routing`; see docs/development/benchmarks.md."""

"""Load and micro benchmarks; see docs/development/benchmarks.md."""

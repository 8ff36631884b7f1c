"""Measurements beside other libraries, in one run: `python -m benchmarks`."""

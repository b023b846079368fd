"""Measurements of what lets people trust a model; see `benchmarks.trust.__main__`."""

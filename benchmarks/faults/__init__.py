"""Attempts to break longtail, for as long as one likes: `python -m benchmarks.faults --minutes N`."""

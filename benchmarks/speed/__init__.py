"""Measurements of speed and size as one command: ``python -m benchmarks.speed list``; see `__main__`."""

"""Measurements of the project: run from the repository root, e.g. ``python -m benchmarks.claims list``."""

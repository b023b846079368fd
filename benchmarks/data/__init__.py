"""Data sets that anyone can build from public Debian packages: ``python -m benchmarks.data NAME OUT``."""

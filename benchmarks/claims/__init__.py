"""The claims of the papers, decided by experiment: ``python -m benchmarks.claims run A6``.

Reading order: `catalogue` (what the papers say), `entries` (how a claim is written down), `deepxml` (a paper's
claims), `worlds` and `crafted_worlds` (data), `workshop` (trainings, each made once), `verdict` (statistics), `runner`
(from a claim to a verdict), `workers` (several processes), `results` (files and tables).
"""

"""The cases of `benchmarks.speed`: one module each, named as the case is.

A case has a docstring, whose first line `list` shows; ``options(parser)``, which adds its arguments; and
``measure(options)``, which returns a `benchmarks.speed.common.Measured`. Command line, recording and what is needed
to time something are shared.
"""

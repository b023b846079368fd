"""Measurements of the project, run from the repository root; records are in benchmarks/results (see `record`).

speed          one command for time and memory, case by case: ``python -m benchmarks.speed list``
race           our recipes and the systems that a user would pick instead, from raw text, in turns
claims         what the papers claim, decided by experiment: ``python -m benchmarks.claims list``
sets           a recipe on whole data sets; `differences` compares what it kept, with intervals
peers          the same systems on equal features, with intervals
warm_start     warm start against cold on a real data set
variants       what choices of recipes are worth, trained side by side, on validation slices or on test
unchanged      every recipe before and after a change of the code: are rankings the same to the last bit?
"""

"""Samples of py-spy, summed up."""

from __future__ import annotations

from benchmarks.prediction_profile import shares

SAMPLES = """main (a.py:1);asked (a.py:2);search (b.py:7) 6
main (a.py:1);import (c.py:1) 50
main (a.py:1);asked (a.py:2);x (d.py:1);search (b.py:7) 3
main (a.py:1);asked (a.py:2) 1
main (a.py:1);masked (e.py:2) 7
"""


def test_samples_count_by_the_line_at_work_and_only_while_asked() -> None:
    assert shares(SAMPLES) == {"search (b.py:7)": 90.0, "asked (a.py:2)": 10.0}

"""What a record says about the GPU."""

from __future__ import annotations

from benchmarks.record import GpuWatch, parsed_samples


def test_lines_that_were_cut_off_are_left_out() -> None:
    assert parsed_samples("0, 0\n45, 1200\n[N/A], 3\n50, 13") == [(0, 0), (45, 1200), (50, 13)]
    assert parsed_samples("45, 1200\n5") == [(45, 1200)]


def test_waiting_before_and_after_the_work_is_told_apart_from_waiting_in_between() -> None:
    watch = GpuWatch()
    watch.samples = [(0, 0), (40, 500), (0, 700), (80, 600), (0, 600)]
    assert watch.report() == {"utilisation": 24.0, "utilisation_while_working": 40.0, "peak_memory_mb": 700}
    watch.samples = [(0, 0)]
    assert watch.report() == {}

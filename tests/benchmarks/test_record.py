"""What a record says about the command and the GPU."""

from __future__ import annotations

from pathlib import Path

from benchmarks.record import GpuWatch, parsed_samples, typed_command


def test_lines_that_were_cut_off_are_left_out() -> None:
    assert parsed_samples("0, 0\n45, 1200\n[N/A], 3\n50, 13") == [(0, 0), (45, 1200), (50, 13)]
    assert parsed_samples("45, 1200\n5") == [(45, 1200)]


def test_waiting_before_and_after_the_work_is_told_apart_from_waiting_in_between() -> None:
    watch = GpuWatch()
    watch.samples = [(0, 0), (40, 500), (0, 700), (80, 600), (0, 600)]
    assert watch.report() == {"utilisation": 24.0, "utilisation_while_working": 40.0, "peak_memory_mb": 700}
    watch.samples = [(0, 0)]
    assert watch.report() == {}


def test_a_recorded_command_names_no_place_of_this_machine(tmp_path: Path, tiny_run: Path) -> None:
    (tmp_path / "set").mkdir()
    (tmp_path / "kept.npz").touch()
    words = [f"{tmp_path}/set", "--model", str(tiny_run), "--checkpoint", f"{tmp_path}/set", "--set", "a.b=c/d"]
    typed = typed_command("speed profile", [*words, f"astec={tmp_path}/kept.npz", "--out", "F.json"])
    assert typed == (
        "python -m benchmarks.speed profile DATA/set --model RUN/tiny --checkpoint set --set a.b=c/d astec=kept.npz"
    )

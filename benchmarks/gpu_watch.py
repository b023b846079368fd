"""How busy the GPU is while something runs, as `nvidia-smi` says twice a second."""

from __future__ import annotations

import shutil
import subprocess
from types import TracebackType

COMMAND = ["nvidia-smi", "--query-gpu=utilization.gpu,memory.used", "--format=csv,noheader,nounits", "-lms", "500"]


class GpuWatch:
    """``with GpuWatch() as watch: ...``, then `watch.report()`; empty where there is no GPU."""

    def __init__(self) -> None:
        self.samples: list[tuple[int, int]] = []
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> GpuWatch:
        if shutil.which(COMMAND[0]):
            self._process = subprocess.Popen(COMMAND, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self._process.terminate()
            self.samples = parsed(self._process.communicate()[0])

    def report(self) -> dict[str, float]:
        """Per cent of the time that some kernel ran: over all, and from the first to the last sample with any; peak
        memory in MB.
        """
        busy = [use for use, _ in self.samples]
        if not any(busy):
            return {}
        first = next(i for i, use in enumerate(busy) if use > 0)
        last = max(i for i, use in enumerate(busy) if use > 0)
        working = busy[first : last + 1]
        return {
            "utilisation": round(sum(busy) / len(busy), 1),
            "utilisation_while_working": round(sum(working) / len(working), 1),
            "peak_memory_mb": max(memory for _, memory in self.samples),
        }


def parsed(text: str) -> list[tuple[int, int]]:
    """(utilisation, memory) per line; a line that was cut off is left out."""
    fields = [line.split(",") for line in text.splitlines()]
    return [
        (int(a), int(b))
        for a, b in (pair for pair in fields if len(pair) == 2)
        if a.strip().isdigit() and b.strip().isdigit()
    ]

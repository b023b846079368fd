"""A claim that takes seconds.

``python -m tests.benchmarks.small_claims run ...`` is ``python -m benchmarks.claims run ...`` for a paper of it alone.
"""

from __future__ import annotations

import sys
import types
from typing import Any

from benchmarks.claims import papers
from benchmarks.claims.__main__ import main
from benchmarks.claims.entries import Claim, Control, Variant, difference
from benchmarks.claims.worlds import Planted

SMALL_WORLD: dict[str, Any] = {
    "documents": 300,
    "test_documents": 200,
    "labels": 100,
    "topics": 5,
    "graph_coverage": 0.0,
    "share_documents_are_labels": 0.0,
}
WORLD = Planted("tiny", SMALL_WORLD, truth="complete")
SILENT = Planted("tiny", {**SMALL_WORLD, "text_informativeness": 0.0, "zipf": 0.0}, truth="complete")
SEES, BLIND = Variant("tiny"), Variant("tiny", ("features.max_features=1",))
READS = Claim(
    id="F17",
    section="none",
    sentence="Reading texts helps.",
    variants={"sees": SEES, "blind": BLIND},
    data=WORLD,
    all_of=(difference("sees", "blind", "P@1"),),
    controls=(Control("text", difference("sees", "blind", "P@1", 5.0), data=SILENT),),
    shown=("P@1",),
)

PROGRAM = (sys.executable, "-m", "tests.benchmarks.small_claims")


def as_a_paper(*claims: Claim) -> dict[str, str]:
    """What takes the place of `papers.PAPERS`."""
    module = types.ModuleType("claims_of_a_test_paper")
    module.__dict__["CLAIMS"] = claims
    sys.modules[module.__name__] = module
    return {"test": module.__name__}


if __name__ == "__main__":
    papers.PAPERS = as_a_paper(READS)
    sys.exit(main())

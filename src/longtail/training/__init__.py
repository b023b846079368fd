"""The run folder, preparation, the one training loop. Here: how many steps an epoch has, whatever the size of the data.

Nothing heavy is imported here: settings say these numbers in their help.
"""

from __future__ import annotations

# With fewer steps small data learns too little; more are a waste of time on large data.
FEWEST_STEPS, MOST_STEPS = 64, 512
ADAPTS = f"adapts to small and large data, an epoch has {FEWEST_STEPS} to {MOST_STEPS} steps"

# Of a setting beside `batch`.
KEEPS = "let documents per step adapt to the size of the data; false: as many as `batch` says, as in the papers"


def adapted_batch(documents: int, asked: int) -> int:
    """`asked`, made smaller (down to 8) or larger (up to four times) so that an epoch has 64 to 512 steps."""
    return max(min(asked, max(8, documents // FEWEST_STEPS)), min(4 * asked, documents // MOST_STEPS))

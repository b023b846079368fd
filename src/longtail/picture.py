"""What a plot shows, before anybody draws it: models and what training leaves say it, the report draws it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

Shape: TypeAlias = Literal["lines", "bars", "stacked"]


@dataclass(frozen=True)
class Picture:
    """Numbers of a plot and the words around it.

    about: how to read it, in a sentence or two.  shape: lines over numbers, bars side by side, or bars on top of each
        other, over names.
    x: where the values of all series stand.  series: name -> as many values as `x` has; nan: none.
    reference: the name of a series that is only there to be compared with.
    """

    title: str
    about: str
    shape: Shape
    x: Sequence[float] | Sequence[str]
    series: Mapping[str, Sequence[float]]
    x_label: str = ""
    y_label: str = ""
    log_x: bool = False
    log_y: bool = False
    reference: str = ""

    def __post_init__(self) -> None:
        for name, values in self.series.items():
            if len(values) != len(self.x):
                raise ValueError(f"'{name}' has {len(values)} values at {len(self.x)} places")

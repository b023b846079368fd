"""The inner loop of the sparse text format: bytes in, numbers out, or the place of the first byte that is wrong."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from longtail.kernels.compiled import compiled
from longtail.types import F32, I64

FINE, BAD_LABEL, LABEL_OUTSIDE, BAD_PAIR, FEATURE_OUTSIDE = range(5)

_TAB, _NEWLINE, _RETURN, _SPACE, _PLUS, _COMMA, _MINUS, _POINT, _ZERO, _NINE, _COLON = b"\t\n\r +,-.09:"
_E, _e = b"Ee"
_POWERS = 10.0 ** np.arange(23)  # exact in 64 bits
_MOST = 3.4028235677973366e38  # from here on a number is infinite in 32 bits
_LONGEST = 10**17  # a mantissa that takes one more digit without overflow
_TOO_LARGE = 1 << 40  # above any number of an item


@compiled(inline=True)
def _is_digit(byte: int) -> bool:
    return _ZERO <= byte <= _NINE


@compiled(inline=True)
def _is_gap(text: NDArray[np.uint8], at: int) -> bool:
    """The end of a word: white space, or the end of the text."""
    return at == len(text) or text[at] == _SPACE or text[at] == _NEWLINE or text[at] == _TAB or text[at] == _RETURN


@compiled()
def whole_number(text: NDArray[np.uint8], at: int) -> tuple[int, int]:
    """The number that starts at `at` and where it ends; it ends at `at` if there is none."""
    number = 0
    while at < len(text) and _is_digit(text[at]):
        if number < _TOO_LARGE:
            number = number * 10 + int(text[at]) - _ZERO
        at += 1
    return number, at


@compiled()
def real_number(text: NDArray[np.uint8], at: int) -> tuple[float, int]:
    """As `whole_number`, with sign, point and exponent. The error is far below what 32 bits can hold."""
    begin, sign = at, 1.0
    if at < len(text) and (text[at] == _MINUS or text[at] == _PLUS):
        sign = -1.0 if text[at] == _MINUS else 1.0
        at += 1
    mantissa, exponent, digits, after_point = np.int64(0), 0, 0, False
    while at < len(text) and (_is_digit(text[at]) or (text[at] == _POINT and not after_point)):
        if text[at] == _POINT:
            after_point = True
        else:
            digits += 1
            if mantissa < _LONGEST:
                mantissa = mantissa * 10 + np.int64(text[at]) - _ZERO
                exponent -= 1 if after_point else 0
            elif not after_point:
                exponent += 1
        at += 1
    if digits == 0:
        return 0.0, begin
    if at < len(text) and (text[at] == _E or text[at] == _e):
        at += 1
        negative = at < len(text) and text[at] == _MINUS
        if at < len(text) and (text[at] == _MINUS or text[at] == _PLUS):
            at += 1
        size, end = whole_number(text, at)
        if end == at:
            return 0.0, begin
        exponent += -size if negative else size
        at = end
    if mantissa == 0:
        return sign * 0.0, at
    return sign * _scaled(float(mantissa), exponent), at


@compiled()
def _scaled(mantissa: float, exponent: int) -> float:
    if 0 <= exponent <= 22:
        return mantissa * _POWERS[exponent]
    if -22 <= exponent < 0:
        return mantissa / _POWERS[-exponent]
    return mantissa * 10.0 ** float(max(min(exponent, 400), -400))


@compiled()
def parse_rows(
    text: NDArray[np.uint8],
    has_labels: bool,
    n_labels: int,
    n_features: int,
    labels: I64,
    label_ends: I64,
    features: I64,
    values: F32,
    feature_ends: I64,
) -> tuple[int, int, int]:
    """Whole lines ``l1,l2 f1:v1 f2:v2`` (without labels if not `has_labels`) into the arrays, which are large enough.

    label_ends, feature_ends: per row, where its entries end. Returns a code, the byte it is about, and the number of
        rows.
    """
    at = row = label = pair = 0
    while at < len(text):
        if has_labels and not _is_gap(text, at):
            more = True
            while more:
                number, end = whole_number(text, at)
                more = end < len(text) and text[end] == _COMMA
                if end == at or not (more or _is_gap(text, end)):
                    return BAD_LABEL, at, row
                if number >= n_labels:
                    return LABEL_OUTSIDE, at, row
                labels[label] = number
                label += 1
                at = end + 1 if more else end
        while at < len(text) and text[at] != _NEWLINE:
            if _is_gap(text, at):
                at += 1
                continue
            number, end = whole_number(text, at)
            if end == at or end == len(text) or text[end] != _COLON:
                return BAD_PAIR, at, row
            value, stop = real_number(text, end + 1)
            if stop == end + 1 or not _is_gap(text, stop) or not abs(value) < _MOST:
                return BAD_PAIR, at, row
            if number >= n_features:
                return FEATURE_OUTSIDE, at, row
            features[pair] = number
            values[pair] = value
            pair += 1
            at = stop
        at += 1
        label_ends[row] = label
        feature_ends[row] = pair
        row += 1
    return FINE, at, row

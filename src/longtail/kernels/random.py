"""Random numbers as a pure function of (key, counter): the same for any number of threads and any order of work.

SplitMix64 (Steele, Lea, Flood 2014). A key names the stream, e.g. one per label; the counter numbers its draws.
"""

from __future__ import annotations

import numpy as np

from longtail.kernels.compiled import compiled

_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)


@compiled()
def mixed(bits: np.uint64) -> np.uint64:
    bits = (bits ^ (bits >> np.uint64(30))) * _MIX_1
    bits = (bits ^ (bits >> np.uint64(27))) * _MIX_2
    return bits ^ (bits >> np.uint64(31))


@compiled()
def key_of(seed: np.uint64, item: int | np.int64) -> np.uint64:
    """The stream of one item (label, document, node)."""
    return mixed(seed + mixed(np.uint64(item) * _GAMMA + np.uint64(1)))


@compiled()
def draw(key: np.uint64, counter: int) -> np.uint64:
    """64 random bits: number `counter` of the stream `key`."""
    return mixed(key + np.uint64(counter + 1) * _GAMMA)


@compiled()
def below(bits: np.uint64, n: int) -> np.int64:
    """A number in 0..n-1 from the upper 32 bits (n < 2^32; uneven by less than n / 2^32)."""
    return np.int64(((bits >> np.uint64(32)) * np.uint64(n)) >> np.uint64(32))


@compiled()
def unit(bits: np.uint64) -> float:
    """A number in [0, 1) from the upper 53 bits."""
    return np.float64(bits >> np.uint64(11)) * (1.0 / 9007199254740992.0)

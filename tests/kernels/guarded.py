"""Arrays between guards: what a kernel writes outside of an operand shows, and what it reads there is NaN."""

import numpy as np

_GUARD = 64  # elements
_CANARY = np.float32(np.nan)


class Guarded:
    """A float32 array with NaN before and after it, at a cache line or `shift` elements beyond one."""

    def __init__(self, shape, data=None, shift=0):
        size = int(np.prod(shape, dtype=np.int64))
        raw = np.full(size + 3 * _GUARD, _CANARY, np.float32)
        start = _GUARD + (-raw.ctypes.data // 4) % 16 + shift
        self.around = raw[:start], raw[start + size :]
        self.array = raw[start : start + size].reshape(shape)
        if data is not None:
            self.array[...] = data

    def check(self):
        """Check that nothing was written around the array."""
        assert all(np.isnan(part).all() for part in self.around)

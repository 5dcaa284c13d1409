"""What a tilelet computes, compiled: loops over the elements of one instruction, for all of its tilelets.

Memory is viewed as an array [tilelets, elements]: of elements (int8 or int16), of biases (int32), and of accumulators
(int32 for elements of one byte, which wrap around on overflow; int64 for two). Addresses count elements of the view.
"""

from __future__ import annotations

import numpy as np
from numba import njit

_FAR = 1 << 20  # beyond all elements: what is larger saturates, whatever the shift


@njit(cache=True, nogil=True, inline="always")
def rescaled(total, shift, low, high):  # pragma: no cover - compiled
    """Return clip(round(total / 2^shift), low, high), ties up, in int64; a negative shift multiplies."""
    if shift > 0:
        total = (total + (np.int64(1) << (shift - 1))) >> shift
    elif shift < 0:
        total = min(max(total, -_FAR), _FAR) << min(-shift, 40)
    return min(max(total, low), high)


@njit(cache=True, nogil=True)
def convolve(memory, biases, sums, units, x, w, y, b, s, shape, window, filters, first, last, scale):
    """Compute `Convolve` on each tilelet; a dense layer is one whose rows are images of one pixel.

    Args:
        memory: Elements of all tilelets.
        biases: The same memory as int32.
        sums: The same memory as accumulators.
        units: Numbers of the tilelets, int64.
        x: Address of the input.
        w: Address of the weights behind the bias.
        y: Address of the output.
        b: Address of the bias.
        s: Address of the accumulators.
        shape: channels, height, width, out_height, out_width.
        window: kernel, strides, dilations and top left padding, each in rows and columns.
        filters: Number of filters.
        first: Whether sums start from the bias.
        last: Whether they are rescaled.
        scale: shift, low, high.
    """
    channels, height, width, rows, columns = shape
    kernel_h, kernel_w, stride_h, stride_w, dilation_h, dilation_w, top, left = window
    shift, low, high = scale
    total = np.empty(columns, sums.dtype)
    for unit in units:
        for f in range(filters):
            for i in range(rows):
                at = (f * rows + i) * columns
                for j in range(columns):
                    total[j] = biases[unit, b + f] if first else sums[unit, s + at + j]
                for c in range(channels):
                    for k in range(kernel_h):
                        row = i * stride_h - top + k * dilation_h
                        if row < 0 or row >= height:
                            continue
                        start = x + (c * height + row) * width
                        for m in range(kernel_w):
                            weight = sums.dtype.type(
                                memory[unit, w + ((f * channels + c) * kernel_h + k) * kernel_w + m]
                            )
                            offset = m * dilation_w - left
                            begin = 0 if offset >= 0 else (-offset + stride_w - 1) // stride_w
                            end = min(columns, (width - offset + stride_w - 1) // stride_w)
                            if stride_w == 1:
                                for j in range(begin, end):
                                    total[j] += weight * memory[unit, start + offset + j]
                            else:
                                for j in range(begin, end):
                                    total[j] += weight * memory[unit, start + offset + j * stride_w]
                if last:
                    for j in range(columns):
                        memory[unit, y + at + j] = rescaled(np.int64(total[j]), shift, low, high)
                else:
                    for j in range(columns):
                        sums[unit, s + at + j] = total[j]


@njit(cache=True, nogil=True)
def depthwise(memory, biases, units, x, w, y, b, shape, window, accumulator, scale):
    """Compute `Depthwise` on each tilelet; `accumulator` is an array of the accumulators' type, else as `convolve`."""
    channels, height, width, rows, columns = shape
    kernel_h, kernel_w, stride_h, stride_w, dilation_h, dilation_w, top, left = window
    shift, low, high = scale
    total = np.empty(columns, accumulator.dtype)
    for unit in units:
        for c in range(channels):
            for i in range(rows):
                total[:] = biases[unit, b + c]
                for k in range(kernel_h):
                    row = i * stride_h - top + k * dilation_h
                    if row < 0 or row >= height:
                        continue
                    start = x + (c * height + row) * width
                    for m in range(kernel_w):
                        weight = accumulator.dtype.type(memory[unit, w + (c * kernel_h + k) * kernel_w + m])
                        offset = m * dilation_w - left
                        begin = 0 if offset >= 0 else (-offset + stride_w - 1) // stride_w
                        end = min(columns, (width - offset + stride_w - 1) // stride_w)
                        for j in range(begin, end):
                            total[j] += weight * memory[unit, start + offset + j * stride_w]
                at = y + (c * rows + i) * columns
                for j in range(columns):
                    memory[unit, at + j] = rescaled(np.int64(total[j]), shift, low, high)


@njit(cache=True, nogil=True)
def dense(memory, biases, sums, units, x, w, y, b, s, sizes, first, last, scale):
    """Compute `Dense` on each tilelet; `sizes` are rows, depth and filters, else as `convolve`."""
    rows, depth, filters = sizes
    shift, low, high = scale
    for unit in units:
        for i in range(rows):
            for f in range(filters):
                total = np.int64(biases[unit, b + f] if first else sums[unit, s + i * filters + f])
                for k in range(depth):
                    total += np.int64(memory[unit, x + i * depth + k]) * memory[unit, w + f * depth + k]
                if last:
                    memory[unit, y + i * filters + f] = rescaled(_wrapped(total, sums), shift, low, high)
                else:
                    sums[unit, s + i * filters + f] = total


@njit(cache=True, nogil=True, inline="always")
def _wrapped(total, sums):  # pragma: no cover - compiled
    """Return a sum as the accumulators' type holds it."""
    return np.int64(sums.dtype.type(total))


@njit(cache=True, nogil=True)
def pool(memory, units, x, y, shape, window, is_max, multiplier, scale):
    """Compute `Pool` on each tilelet; arguments as of `convolve`."""
    channels, height, width, rows, columns = shape
    kernel_h, kernel_w, stride_h, stride_w, dilation_h, dilation_w, top, left = window
    shift, low, high = scale
    lowest = np.iinfo(memory.dtype).min
    for unit in units:
        for c in range(channels):
            for i in range(rows):
                for j in range(columns):
                    best, total = np.int64(lowest), np.int64(0)
                    for k in range(kernel_h):
                        row = i * stride_h - top + k * dilation_h
                        if row < 0 or row >= height:
                            continue
                        for m in range(kernel_w):
                            column = j * stride_w - left + m * dilation_w
                            if 0 <= column < width:
                                value = np.int64(memory[unit, x + (c * height + row) * width + column])
                                best = max(best, value)
                                total += value
                    at = y + (c * rows + i) * columns + j
                    memory[unit, at] = best if is_max else rescaled(total * multiplier, shift, low, high)


@njit(cache=True, nogil=True)
def add(memory, a_view, b_view, units, a, b, y, count, a_shift, b_shift, scale):
    """Compute `Add` on each tilelet; a and b are addresses in views of their element size."""
    shift, low, high = scale
    for unit in units:
        for i in range(count):
            left = np.int64(a_view[unit, a + i]) << a_shift
            right = np.int64(b_view[unit, b + i]) << b_shift
            memory[unit, y + i] = rescaled(left + right, shift, low, high)


@njit(cache=True, nogil=True)
def rescale(memory, units, x, y, count, scale):
    """Compute `Rescale` on each tilelet."""
    shift, low, high = scale
    for unit in units:
        for i in range(count):
            memory[unit, y + i] = rescaled(np.int64(memory[unit, x + i]), shift, low, high)


@njit(cache=True, nogil=True)
def look_up(memory, units, x, table, y, count):
    """Compute `Table` on each tilelet."""
    for unit in units:
        for i in range(count):
            memory[unit, y + i] = memory[unit, table + 128 + memory[unit, x + i]]


@njit(cache=True, nogil=True)
def first_unwritten(written, units, start, end):
    """Return the first tilelet, and its first address in a range, without a value; -1, -1 if there is none."""
    for unit in units:
        count = 0
        for address in range(start, end):
            count += written[unit, address]
        if count < end - start:
            for address in range(start, end):
                if not written[unit, address]:
                    return unit, address
    return -1, -1


@njit(cache=True, nogil=True)
def load(memory, dram, stamps, units, target, address, runs, run, barrier, reader):
    """Copy runs from DRAM to each tilelet, and check the stamps of what is read; see `simulator`.

    Args:
        memory: Bytes of all tilelets.
        dram: Bytes.
        stamps: Who wrote each byte of the DRAM.
        units: Numbers of the tilelets.
        target: First address in the tilelets' memory.
        address: First address in DRAM.
        runs: rows, row_stride, columns, column_stride.
        run: Bytes of a run.
        barrier: Stamps up to this one are older than the last barrier.
        reader: The stamp of the only tilelet that reads, which may read what it wrote itself; -1 if there are several.

    Returns:
        The first address that must not be read, or -1.
    """
    rows, row_stride, columns, column_stride = runs
    for i in range(rows):
        for j in range(columns):
            start = address + i * row_stride + j * column_stride
            bad = 0
            for n in range(start, start + run):
                stamp = stamps[n]
                bad += (stamp <= 0 and stamp != -1) or (stamp > barrier and stamp != reader)
            if bad:
                for n in range(start, start + run):
                    stamp = stamps[n]
                    if (stamp <= 0 and stamp != -1) or (stamp > barrier and stamp != reader):
                        return n
    for unit in units:
        to = target
        for i in range(rows):
            for j in range(columns):
                start = address + i * row_stride + j * column_stride
                memory[unit, to : to + run] = dram[start : start + run]
                to += run
    return -1


@njit(cache=True, nogil=True)
def store(memory, dram, stamps, unit, source, address, runs, run, barrier, writer):
    """Copy a tilelet's bytes to runs in DRAM and stamp them; arguments and result as of `load`."""
    rows, row_stride, columns, column_stride = runs
    for i in range(rows):
        for j in range(columns):
            start = address + i * row_stride + j * column_stride
            for n in range(start, start + run):
                if stamps[n] < 0 or (stamps[n] > barrier and stamps[n] != writer):
                    return n
            dram[start : start + run] = memory[unit, source : source + run]
            stamps[start : start + run] = writer
            source += run
    return -1

"""The instructions of a layer: its slices over tilelets, step by step.

A step computes one slice on each tilelet: the tilelets of a group have different pixels, the groups different filters.
Tilelets with the same pixels share an input slice, those with the same filters a slice of the weights, and one transfer
delivers it to all of them. With double buffering a step's transfers come before the computation of the step before.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from mlhood.compiler.backends.nmp.codegen.emitter import Emitter, PackedWeights, products
from mlhood.compiler.backends.nmp.codegen.slicing import (
    ALIGNMENT,
    Reach,
    Region,
    Slicing,
    limit,
    parts,
    regions,
)
from mlhood.compiler.backends.nmp.isa.computations import (
    LANES,
    Add,
    Computation,
    Convolve,
    Dense,
    Depthwise,
    Pool,
    Rescale,
    lane_steps,
)
from mlhood.compiler.backends.nmp.isa.instruction import Load, Store, Units, ceil_div
from mlhood.compiler.backends.nmp.machine import Machine
from mlhood.compiler.backends.nmp.stages import NmpStage

_INPUT, _WEIGHTS, _RESULTS = 0, 1, 2  # blobs; results are in this one and the next in turn
Round = tuple[int, int, int]  # rounds of pixels and of filters, and the slice of input channels


@dataclass(frozen=True)
class DramView:
    """Images in DRAM: [channels, height, width], or the rows of a dense layer, [height, channels].

    Args:
        address: Of the first element.
        stage: The stage that reads or writes it.
        is_output: Whether it is the stage's output, or an operand of its shape.
    """

    address: int
    stage: NmpStage
    is_output: bool

    @cached_property
    def sizes(self) -> tuple[int, int, int]:
        """Channels, rows and columns."""
        s = self.stage
        return (s.filters, s.out_height, s.out_width) if self.is_output else (s.channels, s.height, s.width)

    def runs(self, channels: tuple[int, int], region: Region) -> dict[str, int]:
        """Return the operands of a transfer of some channels of a region."""
        depth, height, width = self.sizes
        size, count = self.stage.element, channels[1] - channels[0]
        if self.stage.kind == "dense":
            start = self.address + (region.top * depth + channels[0]) * size
            if count == depth:
                return {"dram": start, "run": region.rows * depth * size}
            run = {"dram": start, "run": count * size}
            return run | {"columns": region.rows, "column_stride": depth * size}
        start = self.address + ((channels[0] * height + region.top) * width + region.left) * size
        if region.columns < width:
            run = {"dram": start, "run": region.columns * size}
            run |= {"columns": region.rows, "column_stride": width * size}
            return run | {"rows": count, "row_stride": height * width * size}
        if region.rows < height:
            run = {"dram": start, "run": region.rows * width * size}
            return run | {"columns": count, "column_stride": height * width * size}
        return {"dram": start, "run": count * height * width * size}


@dataclass(frozen=True)
class LayerData:
    """Where a layer's data lie in DRAM.

    Args:
        x: The input of one image.
        y: The output.
        operands: Second operands of the stages that have one, by number of the stage.
        weights: Address of the packed weights.
        partial: Address of accumulators that leave the tilelets; `partial_bytes` says how many bytes there are.
    """

    x: DramView
    y: DramView
    operands: Mapping[int, DramView] = field(default_factory=dict)
    weights: int = 0
    partial: int = 0


class LayerEmitter:
    """Appends the instructions of a layer, for one image.

    Args:
        emitter: Where they are appended.
        stages: The layer's stages.
        slicing: How it is cut; it must fit the machine.
        packed: Its weights.
        data: Where its data lie.
    """

    def __init__(
        self, emitter: Emitter, stages: Sequence[NmpStage], slicing: Slicing, packed: PackedWeights, data: LayerData
    ) -> None:
        self.emitter, self.stages, self.slicing, self.packed, self.data = emitter, stages, slicing, packed, data
        self.machine = emitter.machine
        last = stages[-1]
        rows, columns = parts(last.out_height, slicing.rows), parts(last.out_width, slicing.columns)
        self.pixels = [Region(*row, *column) for row in rows for column in columns]
        self.filters, self.channels = packed.filters, packed.channels
        self.spatial = self.machine.units // (slicing.tiles * slicing.tilelets)  # tilelets with different pixels
        self.groups = slicing.tiles * slicing.tilelets
        self._reaches = [regions(stages, region) for region in self.pixels]
        self._resident: dict[int, Any] = {}  # by blob: what is in it
        self._buffer: dict[int, int] = defaultdict(int)  # by blob: which half is in use
        self._at: dict[Round, dict[int, int]] = {}  # by step: the halves that it uses
        self._units: dict[tuple[tuple[int, ...], tuple[int, ...]], list[Units]] = {}

    def emit(self) -> None:
        """Append all instructions but the barrier."""
        steps = list(self._steps())
        ahead = self.slicing.double_buffered
        for n, step in enumerate(steps):
            if not (ahead and n):
                self._load(step, steps[n - 1] if n else None)
            if ahead and n + 1 < len(steps):
                self._load(steps[n + 1], step)
            self._compute(step)
            self._store(step, steps[n + 1] if n + 1 < len(steps) else None)

    def _steps(self) -> Iterator[Round]:
        rounds = ceil_div(len(self.pixels), self.spatial), ceil_div(len(self.filters), self.groups)
        i, j, k = range(rounds[0]), range(rounds[1]), range(len(self.channels))
        match self.slicing.order:
            case "weight":
                yield from ((a, b, c) for b in j for c in k for a in i)
            case "input":
                yield from ((a, b, c) for a in i for c in k for b in j)
            case _:
                yield from ((a, b, c) for a in i for b in j for c in k)

    # -- which tilelets, which slices

    def _pixels_of(self, i: int) -> range:
        """Return the tilelets of a group that have pixels in a round."""
        return range(min(self.spatial, len(self.pixels) - i * self.spatial))

    def _groups_of(self, j: int) -> range:
        """Return the groups that have filters in a round."""
        return range(min(self.groups, len(self.filters) - j * self.groups))

    def units(self, spatial: Sequence[int], groups: Sequence[int]) -> list[Units]:
        """Return the tilelets with some numbers in their groups, in some groups."""
        key = tuple(spatial), tuple(groups)
        if key not in self._units:
            tilelets = self.machine.tilelets // self.slicing.tilelets
            pairs = []
            for s in spatial:
                for g in groups:
                    (tile, tilelet), (group_tile, group_tilelet) = divmod(s, tilelets), divmod(g, self.slicing.tilelets)
                    first = tile * self.slicing.tiles + group_tile, tilelet * self.slicing.tilelets + group_tilelet
                    pairs.append(first)
            self._units[key] = [Units(*product) for product in products(pairs)]
        return self._units[key]

    # -- transfers

    def _load(self, step: Round, before: Round | None) -> None:
        i, j, k = step
        first = self.stages[0]
        if self._changes(_INPUT, (i, k) if first.multiplies else (i, j)):
            self._load_input(step)
        if self.packed.size(j * self.groups, k) and self._changes(_WEIGHTS, (j, k)):
            for g in self._groups_of(j):
                number = j * self.groups + g
                operands = {"dram": self.data.weights + self.packed.address(number, k)}
                operands["run"] = self.packed.size(number, k)
                self._transfer(Load, self.units(self._pixels_of(i), [g]), _WEIGHTS, operands)
        self._changes(_RESULTS, (i, j))
        if k and (before is None or before[:2] != (i, j)):
            self._move_partial(Load, step)
        if k == len(self.channels) - 1:
            self._load_operands(step)
        self._at[step] = dict(self._buffer)

    def _changes(self, blob: int, key: Any) -> bool:
        """Return whether a blob must get other contents, which then go to its other half."""
        if self._resident.get(blob) == key:
            return False
        self._resident[blob] = key
        self._buffer[blob] ^= int(self.slicing.double_buffered)
        return True

    def _load_input(self, step: Round) -> None:
        i, j, k = step
        for s in self._pixels_of(i):
            region = self._reaches[i * self.spatial + s][0].region
            if self.stages[0].multiplies:
                runs = self.data.x.runs(self.channels[k], region)
                self._transfer(Load, self.units([s], self._groups_of(j)), _INPUT, runs)
                continue
            for g in self._groups_of(j):
                runs = self.data.x.runs(self.filters[j * self.groups + g], region)
                self._transfer(Load, self.units([s], [g]), _INPUT, runs)

    def _load_operands(self, step: Round) -> None:
        i, j, _ = step
        for n, view in self.data.operands.items():
            for s in self._pixels_of(i):
                region = self._output_of(n, i * self.spatial + s)
                for g in self._groups_of(j):
                    runs = view.runs(self.filters[j * self.groups + g], region)
                    self._transfer(Load, self.units([s], [g]), _RESULTS + n % 2, runs, _RESULTS)

    def _store(self, step: Round, after: Round | None) -> None:
        i, j, k = step
        if k < len(self.channels) - 1:
            if after is None or after[:2] != (i, j):
                self._move_partial(Store, step)
            return
        n = len(self.stages) - 1
        for s in self._pixels_of(i):
            region = self.pixels[i * self.spatial + s]
            for g in self._groups_of(j):
                runs = self.data.y.runs(self.filters[j * self.groups + g], region)
                self._transfer(Store, self.units([s], [g]), _RESULTS + n % 2, runs, _RESULTS, self._at[step])

    def _move_partial(self, kind: type[Load] | type[Store], step: Round) -> None:
        """Move the accumulators of the first stage to DRAM, or back."""
        i, j, _ = step
        at = self._at.get(step) if kind is Store else None
        for s in self._pixels_of(i):
            number = i * self.spatial + s
            for g in self._groups_of(j):
                low, high = self.filters[j * self.groups + g]
                size = (high - low) * self.pixels[number].pixels * 4 * self.stages[0].element
                slot = number * len(self.filters) + j * self.groups + g
                operands = {"dram": self.data.partial + slot * self.partial_slot, "run": size}
                self._transfer(kind, self.units([s], [g]), _RESULTS, operands, _RESULTS, at)

    @cached_property
    def partial_slot(self) -> int:
        """Bytes of the largest slice of accumulators, aligned."""
        pixels = max(region.pixels for region in self.pixels)
        filters = max(high - low for low, high in self.filters)
        return ceil_div(4 * self.stages[0].element * pixels * filters, ALIGNMENT) * ALIGNMENT

    @property
    def partial_bytes(self) -> int:
        """Bytes of all accumulators that leave the tilelets."""
        if len(self.channels) == 1 or self.slicing.order == "output":
            return 0
        return self.partial_slot * len(self.pixels) * len(self.filters)

    def _transfer(
        self,
        kind: type[Load] | type[Store],
        units: list[Units],
        blob: int,
        operands: dict[str, int],
        half: int | None = None,
        at: Mapping[int, int] | None = None,
    ) -> None:
        """Append a transfer of a blob, in the half in use; results share that of the first of their blobs."""
        address = self._address(blob, self._buffer if at is None else at, blob if half is None else half)
        for each in units:
            self.emitter.transfer(kind(each, address, **operands))

    def _address(self, blob: int, halves: Mapping[int, int], half: int) -> int:
        return blob * self.machine.blob_bytes + halves.get(half, 0) * limit(self.machine, True)

    # -- computation

    def _output_of(self, n: int, number: int) -> Region:
        """Return the region of stage n's output for a slice of pixels."""
        reaches = self._reaches[number]
        return reaches[n + 1].region if n + 1 < len(reaches) else self.pixels[number]

    def _compute(self, step: Round) -> None:
        i, j, k = step
        spatial: dict[Any, list[int]] = defaultdict(list)
        for s in self._pixels_of(i):
            number = i * self.spatial + s
            outputs = [self._output_of(n, number) for n in range(len(self.stages))]
            key = tuple(_shape_key(r, output) for r, output in zip(self._reaches[number], outputs, strict=True))
            spatial[key].append(s)
        groups: dict[int, list[int]] = defaultdict(list)
        for g in self._groups_of(j):
            low, high = self.filters[j * self.groups + g]
            groups[high - low].append(g)
        stages = range(len(self.stages) if k == len(self.channels) - 1 else 1)
        for numbers in spatial.values():
            number = i * self.spatial + numbers[0]
            for filters, members in groups.items():
                for units in self.units(numbers, members):
                    for n in stages:
                        where = (j * self.groups + members[0], k, self._at[step])
                        output = self._output_of(n, number)
                        self.emitter.compute(
                            self._instruction(n, units, filters, self._reaches[number][n], output, *where)
                        )

    def _instruction(
        self, n: int, units: Units, filters: int, reached: Reach, output: Region, j: int, k: int, at: Mapping[int, int]
    ) -> Computation:
        stage, is_last = self.stages[n], k == len(self.channels) - 1
        y = self._address(_RESULTS + n % 2, at, _RESULTS)
        x = self._address(_RESULTS + (n - 1) % 2, at, _RESULTS) if n else self._address(_INPUT, at, _INPUT)
        w = self._address(_WEIGHTS, at, _WEIGHTS) + self.packed.offsets(j, k)[n]
        scale: dict[str, Any] = {"shift": stage.shift, "low": stage.low, "high": stage.high}
        e, count = stage.element, filters * output.pixels
        channels = self.channels[k][1] - self.channels[k][0] if stage.multiplies else filters
        sums: dict[str, Any] = {"first": not k, "last": is_last and not stage.wide, "accumulators": y}
        match stage.kind:
            case "dense":
                return Dense(
                    units, x, w, y, **sums, element=e, rows=output.rows, depth=channels, filters=filters, **scale
                )
            case "add":
                a = 4 * e if stage.wide else e
                return Add(units, x, y, y, e, a, e, count, stage.a_shift, stage.b_shift, **scale)
            case "rescale":
                return Rescale(units, x, y, e, count, **scale)
        window = _window_operands(stage, channels, reached, output) | scale
        if stage.kind in ("max", "mean"):
            return Pool(units, x, y, e, **window, kind=stage.kind, multiplier=stage.multiplier)
        lanes = best_lanes(filters, output.pixels, self.machine, e)
        if stage.kind == "depthwise":
            return Depthwise(units, x, y, e, **window, w=w, lanes=lanes)
        return Convolve(units, x, y, e, **window, w=w, filters=filters, lanes=lanes, **sums)


def _shape_key(reached: Reach, output: Region) -> tuple[int, ...]:
    region = reached.region
    return (region.rows, region.columns, reached.pad_top, reached.pad_left, output.rows, output.columns)


def _window_operands(stage: NmpStage, channels: int, reached: Reach, output: Region) -> dict[str, Any]:
    window = stage.window
    return {
        "channels": channels,
        "height": reached.region.rows,
        "width": reached.region.columns,
        "kernel_height": window.kernel[0],
        "kernel_width": window.kernel[1],
        "stride_height": window.strides[0],
        "stride_width": window.strides[1],
        "dilation_height": window.dilations[0],
        "dilation_width": window.dilations[1],
        "pad_top": reached.pad_top,
        "pad_left": reached.pad_left,
        "out_height": output.rows,
        "out_width": output.columns,
    }


def best_lanes(filters: int, pixels: int, machine: Machine, element: int) -> str:
    """Return what the multipliers should share out among themselves, so that a slice takes fewest cycles."""
    return min(LANES, key=lambda lanes: lane_steps(lanes, filters, pixels, machine.lanes(element)))

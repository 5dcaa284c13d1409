"""One network, measured by `bench_model`: as data, and as the lines that the command prints."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from mlhood.measure import Comparison
from mlhood.measure.units import duration


@dataclass(frozen=True)
class NetworkTimes:
    """One network, measured.

    Args:
        name: The network's.
        batch: Number of examples.
        ours: Our first target.
        flops: Operations of the products, two for each multiply-accumulate.
        result: The times of all alternatives.
        peak: float32 operations per second that the threads can reach.
        nodes: Number of nodes by stage.
        constants: Bytes of weights by alternative.
        activations: Peak bytes of the activations by target, for those that tell.
        compilation: Seconds from the file to the first result, such as "cold" and "cached".
        moved: Bytes that are read and written: by our targets' kernels, each input, weight and result once.
        bandwidth: Bytes per second that the threads can read and write; None if unknown.
        quality: SQNR of the int8 models' outputs in dB.
        refused: Why a target cannot run the network.
        notes: What else there is to say, in words.
    """

    name: str
    batch: int
    ours: str
    flops: int
    result: Comparison
    peak: float
    nodes: dict[str, int]
    constants: dict[str, int]
    activations: dict[str, int]
    compilation: dict[str, float]
    moved: dict[str, int] = field(default_factory=dict)
    bandwidth: float | None = None
    quality: dict[str, float] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Return JSON-serialisable data: medians and quartiles in seconds, ratios with intervals, sizes in bytes."""
        times = self.result.measurements
        ratios = {name: self.result.ratio(name, self.ours) for name in times if name != self.ours}
        rates = {name: self.flops / measured.median for name, measured in times.items()}
        return {
            "model": self.name,
            "batch": self.batch,
            "threads": self.result.threads,
            "ours": self.ours,
            "flops": self.flops,
            "seconds": {name: measured.median for name, measured in times.items()},
            "quartiles": {name: list(measured.quartiles) for name, measured in times.items()},
            "rounds": next(iter(times.values())).rounds,
            "interrupted": self.result.interrupted,
            "ratios": {name: {"value": r.value, "low": r.low, "high": r.high} for name, r in ratios.items()},
            "gflops": {name: rate / 1e9 for name, rate in rates.items()},
            "share_of_peak": {name: rate / self.peak for name, rate in rates.items()},
            "moved_bytes": self.moved,
            "share_of_bandwidth": self._bandwidth_shares(),
            "nodes": self.nodes,
            "constant_bytes": self.constants,
            "activation_bytes": self.activations,
            "compile_seconds": self.compilation,
            "sqnr": self.quality,
            "refused": self.refused,
            "notes": list(self.notes),
        }

    def _bandwidth_shares(self) -> dict[str, float]:
        if self.bandwidth is None:
            return {}
        times = self.result.measurements
        rates = {name: size / times[name].median for name, size in self.moved.items() if name in times}
        return {name: rate / self.bandwidth for name, rate in rates.items()}

    def __str__(self) -> str:
        row = self.as_dict()
        nodes = " -> ".join(f"{count} ({stage})" for stage, count in self.nodes.items())
        times = ", ".join(f"{duration(seconds)} {kind}" for kind, seconds in self.compilation.items())
        lines = [
            f"{self.name}, batch {self.batch}: {self.flops / 2e6:,.1f} million multiply-accumulates; nodes {nodes}",
            f"  {self.ours}: from the file to the first result {times}",
            f"  {'':22} {'median':>10} {'GFLOP/s':>8} {'of peak':>8} "
            f"{'of bandwidth':>12} {'constants':>11} {'activations':>12}  ratio",
        ]
        lines += [self._line(name, row) for name in row["seconds"]]
        lines += [f"  {name}: SQNR {decibels:.1f} dB" for name, decibels in self.quality.items()]
        lines += [f"  {note}" for note in self.notes]
        return "\n".join([*lines, *(f"  {name} refuses: {why}" for name, why in self.refused.items())])

    def _line(self, name: str, row: dict[str, Any]) -> str:
        ratio = "" if name == self.ours else str(self.result.ratio(name, self.ours))
        constants = _mebibytes(self.constants.get(name))
        activations = _mebibytes(self.activations.get(name))
        share = row["share_of_bandwidth"].get(name)
        rates = f"{row['gflops'][name]:8.1f} {row['share_of_peak'][name]:8.1%} "
        rates += " " * 12 if share is None else f"{share:12.1%}"
        milliseconds = f"{1e3 * row['seconds'][name]:.3f} ms"
        return f"  {name:22} {milliseconds:>10} {rates} {constants:>11} {activations:>12}  {ratio}".rstrip()


def _mebibytes(size: int | None) -> str:
    return "" if size is None else f"{size / 2**20:,.2f} MiB"

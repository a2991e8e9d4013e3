"""`anabranch bench encryption`: CPU seconds a GB of copies between two processes, in turns."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from anabranch_bench.probes.encrypted_copy import CopyCost, copy_source

KINDS = ("plain", "tls")


@dataclass(frozen=True, slots=True)
class EncryptionSettings:
    """Sizes of a run."""

    gb: float = 1.0
    """Of each copy."""
    repeat: int = 5
    """Copies of each kind."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One copy."""

    encryption: str
    copy: CopyCost

    @property
    def cpu_seconds_a_gb(self) -> float:
        """Of both ends."""
        both = self.copy.server_cpu_seconds + self.copy.caller_cpu_seconds
        return both / (self.copy.bytes / 1e9)

    def to_json(self) -> dict[str, Any]:
        """For machines."""
        return {
            "encryption": self.encryption,
            "cpu_seconds_a_gb": self.cpu_seconds_a_gb,
            **asdict(self.copy),
        }

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> Turn:
        """What `to_json` was told of."""
        names = ("bytes", "seconds", "server_cpu_seconds", "caller_cpu_seconds", "call_ms")
        return cls(told["encryption"], CopyCost(**{name: told[name] for name in names}))

    def line(self) -> str:
        """For people."""
        copy = self.copy
        return (
            f"{self.encryption:<6} {copy.bytes / 1e9:.2f} GB: {self.cpu_seconds_a_gb:.2f} CPU s a "
            f"GB ({copy.server_cpu_seconds:.2f} s there, {copy.caller_cpu_seconds:.2f} s here), "
            f"{copy.bytes / 1e6 / copy.seconds:.0f} MB/s; connect and call {copy.call_ms:.1f} ms"
        )


def run_turns(settings: EncryptionSettings) -> Iterator[Turn]:
    """Plain, encrypted, plain, encrypted, ...; a first copy of each does not count."""
    with copy_source(int(settings.gb * 1e9)) as source:
        for kind in KINDS:
            source.copy(kind)
        for _ in range(settings.repeat):
            for kind in KINDS:
                yield Turn(kind, source.copy(kind))


def cells(found: Sequence[Turn], kind: str) -> list[str]:
    """A row of the table in the documentation: medians and ranges."""
    costs = sorted(t.cpu_seconds_a_gb for t in found if t.encryption == kind)
    calls = sorted(t.copy.call_ms for t in found if t.encryption == kind)
    return [
        f"{statistics.median(costs):.2f} [{costs[0]:.2f} to {costs[-1]:.2f}]",
        f"{statistics.median(calls):.1f} ms [{calls[0]:.1f} to {calls[-1]:.1f}]",
    ]


def summary(found: Sequence[Turn]) -> list[str]:
    """Medians and ranges, for people."""
    medians = {
        kind: statistics.median(t.cpu_seconds_a_gb for t in found if t.encryption == kind)
        for kind in KINDS
    }
    rows = [f"| {kind} | {' | '.join(cells(found, kind))} |" for kind in KINDS]
    more = f"encryption costs {medians['tls'] - medians['plain']:.2f} CPU seconds a GB more"
    return ["| | CPU seconds a GB | connect and call |", "|---|---|---|", *rows, more]

"""How busy workers are, from looks at what they have been busy so far."""

from __future__ import annotations

from typing import Any

from anabranch.http.utilisation import SECONDS_MAX, Utilisation


class Watched:
    """A clock, and workers with these seconds."""

    def __init__(self) -> None:
        self.now = 0.0
        self.utilisation = Utilisation(lambda: self.now)

    def look(self, now: float, **seconds: float) -> None:
        self.now = now
        workers: dict[str, Any] = {
            name: {"busy_seconds": {"a": {"applying": each / 2}, "b": {"applying": each / 2}}}
            for name, each in seconds.items()
        }
        self.utilisation.look(workers)

    def shares(self) -> dict[str, float]:
        return {name: each["applying"] for name, each in self.utilisation.shares().items()}


def test_nothing_is_said_before_there_are_two_looks() -> None:
    watched = Watched()
    assert watched.shares() == {}
    watched.look(0, w1=1.0)
    watched.look(1, w1=1.5)
    assert watched.shares() == {}


def test_shares_of_all_operators_together() -> None:
    watched = Watched()
    watched.look(0, w1=1.0, w2=0.0)
    watched.look(10, w1=6.0, w2=1.0)
    assert watched.shares() == {"w1": 0.5, "w2": 0.1}


def test_a_new_process_counts_from_its_first_look() -> None:
    watched = Watched()
    watched.look(0, w1=100.0)
    watched.look(10, w1=1.0, w2=0.0)
    watched.look(20, w1=4.0, w2=5.0)
    assert watched.shares() == {"w1": 0.3, "w2": 0.5}


def test_old_looks_are_forgotten() -> None:
    watched = Watched()
    watched.look(0, w1=0.0)
    watched.look(SECONDS_MAX + 1, w1=1.0)
    watched.look(SECONDS_MAX + 11, w1=11.0)
    assert watched.shares() == {"w1": 1.0}

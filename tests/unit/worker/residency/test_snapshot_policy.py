"""When key groups are saved."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from anabranch.worker.residency.snapshot_policy import (
    BYTES_MIN,
    CATCH_UP,
    GROWTH,
    LATE_EPOCHS,
    PATIENCE,
    PATIENCE_MOVING,
    Wear,
    due,
)

BYTES = 1000 * BYTES_MIN
GROUPS = 64
SIZES = dict.fromkeys(range(GROUPS), BYTES)


def worn(size: int, epoch: int = 0) -> dict[int, Wear]:
    return {group: Wear(epoch, size) for group in SIZES}


def test_what_has_not_changed_is_never_saved() -> None:
    assert due(worn(0), SIZES, 100 * LATE_EPOCHS, 0)[0] == []


def test_few_changes_are_saved_late() -> None:
    early = int(PATIENCE * LATE_EPOCHS)
    assert due(worn(1), SIZES, early - 1, 1)[0] == []
    assert due(worn(1), SIZES, early, 1)[0]


def test_many_changes_are_saved_early() -> None:
    many = int(PATIENCE * GROWTH * BYTES)
    assert due(worn(many - 1), SIZES, 1, BYTES)[0] == []
    assert due(worn(many), SIZES, 1, BYTES)[0]


def test_a_move_comes_first_but_not_for_ever() -> None:
    assert due(worn(1), SIZES, LATE_EPOCHS, 1, PATIENCE_MOVING)[0] == []
    assert due(worn(1), SIZES, int(PATIENCE_MOVING * LATE_EPOCHS), 1, PATIENCE_MOVING)[0]


def test_the_most_worn_come_first() -> None:
    wear = worn(BYTES)
    wear[7].bytes = 5 * BYTES
    assert due(wear, SIZES, 1, 1)[0][0] == 7


def test_debts_do_not_outlive_the_key_groups_that_made_them() -> None:
    assert due({0: Wear(0)}, {0: BYTES}, 1, 1, debt=5.0 * BYTES)[1] == BYTES
    assert due({}, {}, 1, 1, debt=BYTES) == ([], 0)


class Load:
    """Each epoch adds so many bytes to some key groups; what is due is saved."""

    def __init__(self, size: int, added: int, changing: Collection[int] = SIZES) -> None:
        self.sizes = dict.fromkeys(range(GROUPS), size)
        self.wear = worn(0)
        self.added, self.changing = added, changing
        self.saved_at: dict[int, list[int]] = {group: [] for group in SIZES}
        self.saved: list[int] = []
        """How many key groups after each epoch."""
        self.longest = 0

    def run(self, epochs: int) -> Load:
        debt = 0.0
        for epoch in range(epochs):
            for group in self.changing:
                self.wear[group].bytes += self.added
            self.longest = max(self.longest, *(wear.bytes for wear in self.wear.values()))
            changed = self.added * len(self.changing)
            some, debt = due(self.wear, self.sizes, epoch, changed, debt=debt)
            for group in some:
                self.wear[group] = Wear(epoch)
                self.saved_at[group].append(epoch)
            self.saved.append(len(some))
        return self

    def most_in(self, epochs: int) -> int:
        """Most key groups that were saved in so many epochs."""
        return max(sum(self.saved[i : i + epochs]) for i in range(len(self.saved)))

    def rounds(self) -> list[int]:
        """How often each key group that changes was saved."""
        return [len(self.saved_at[group]) for group in self.changing]


def test_no_epoch_pays_for_all_yet_all_are_saved_in_time() -> None:
    """Many changes everywhere: all key groups are as worn at any time."""
    load = Load(BYTES, BYTES // 40).run(800)
    needed = GROUPS / (40 * GROWTH)  # key groups an epoch
    assert max(load.saved) <= CATCH_UP * needed + 1
    assert load.longest <= 1.5 * GROWTH * BYTES
    assert min(load.rounds()) >= 8
    assert sum(load.rounds()) <= 1.1 * needed * 800


def test_large_key_groups_are_saved_one_at_a_time_all_the_time() -> None:
    """Few changes in much state: only the number of epochs makes it due, all of it at once."""
    load = Load(BYTES, 1).run(6 * LATE_EPOCHS)
    assert max(load.saved) == 1
    eighth = LATE_EPOCHS // 8
    assert load.most_in(eighth) <= CATCH_UP * GROUPS / 8 + 1
    assert load.longest <= 1.5 * LATE_EPOCHS  # a byte in each epoch
    assert min(load.rounds()) >= 4
    assert max(load.rounds()) <= 7


@pytest.mark.parametrize("added", [1, BYTES // 40])
def test_few_key_groups_that_change_are_not_saved_more_often(added: int) -> None:
    epochs = 6 * LATE_EPOCHS
    few, all_ = (Load(BYTES, added, range(count)).run(epochs) for count in (4, GROUPS))
    assert max(few.rounds()) <= max(all_.rounds()) + 1


def test_small_groups_wait_until_a_file_is_worth_it() -> None:
    load = Load(10, 500).run(1000)
    assert max(load.rounds()) <= 1000 * 500 // BYTES_MIN + 1
    assert load.longest <= 1.5 * BYTES_MIN


def test_small_state_is_saved_soon_once_manifests_have_long_lists() -> None:
    early = int(PATIENCE * LATE_EPOCHS)
    load = Load(10, 1).run(early + GROUPS)
    assert load.rounds() == [1] * GROUPS
    assert sum(load.saved[:early]) == 0

"""When key groups are saved."""

from __future__ import annotations

from anabranch.runtime.wear import BYTES_MIN, GROWTH, LATE_EPOCHS, PATIENCE_MOVING, Wear, due, owed

BYTES = 10 * BYTES_MIN
GROUPS = 64
SIZES = dict.fromkeys(range(GROUPS), BYTES)


def worn(size: int, epoch: int = 0) -> dict[int, Wear]:
    return {group: Wear(epoch, size) for group in SIZES}


def test_what_has_not_changed_is_never_saved() -> None:
    assert due(worn(0), SIZES, 100 * LATE_EPOCHS, 0) == []


def test_few_changes_are_saved_late() -> None:
    assert due(worn(1), SIZES, LATE_EPOCHS - 1, 1) == []
    assert due(worn(1), SIZES, LATE_EPOCHS, 1)


def test_many_changes_are_saved_early() -> None:
    many = int(GROWTH * BYTES)
    assert due(worn(many - 1), SIZES, 1, BYTES) == []
    assert due(worn(many), SIZES, 1, BYTES)


def test_small_groups_wait_until_a_file_is_worth_it() -> None:
    sizes = dict.fromkeys(range(GROUPS), 10)
    assert due(worn(BYTES_MIN - 1), sizes, 1, 500) == []
    assert due(worn(BYTES_MIN), sizes, 1, 500)


def test_a_move_comes_first_but_not_for_ever() -> None:
    assert due(worn(1), SIZES, LATE_EPOCHS, 1, PATIENCE_MOVING) == []
    assert due(worn(1), SIZES, int(PATIENCE_MOVING * LATE_EPOCHS), 1, PATIENCE_MOVING)


def test_the_most_worn_come_first() -> None:
    wear = worn(BYTES)
    wear[7].bytes = 5 * BYTES
    assert due(wear, SIZES, 1, 1)[0] == 7


def test_no_epoch_pays_for_all_yet_all_are_saved_in_time() -> None:
    """Uniform load: everything becomes due at once."""
    changed = GROUPS * BYTES // 40
    wear = worn(0)
    saved_at: dict[int, list[int]] = {group: [] for group in SIZES}
    most = 0
    for epoch in range(1, 600):
        for group in SIZES:
            wear[group].bytes += changed // GROUPS
        chosen = due(wear, SIZES, epoch, changed)
        most = max(most, len(chosen))
        for group in chosen:
            wear[group] = Wear(epoch)
            saved_at[group].append(epoch)
    assert 0 < most * BYTES <= 3 * changed
    longest = max(wear[group].bytes for group in SIZES)
    assert longest <= 2 * GROWTH * BYTES
    assert min(map(len, saved_at.values())) >= 5


def test_large_key_groups_are_saved_one_at_a_time_and_no_faster_than_needed() -> None:
    """Few changes in much state: only the number of epochs makes it due, all of it at once."""
    wear, debt = worn(1), 0.0
    saved_at: list[int] = []
    for epoch in range(LATE_EPOCHS, 2 * LATE_EPOCHS):
        chosen = due(wear, SIZES, epoch, 1, 1.0, debt)
        debt = owed(chosen, SIZES, 1, debt)
        assert len(chosen) <= 1 + GROUPS // LATE_EPOCHS
        for group in chosen:
            wear[group] = Wear(epoch)
            saved_at.append(epoch)
    assert len(saved_at) == GROUPS
    # One key group after each epoch would be through them all in an eighth of the time.
    assert saved_at[-1] - LATE_EPOCHS > LATE_EPOCHS // 2


def test_debts_do_not_outlive_the_key_groups_that_made_them() -> None:
    assert owed([0], {0: BYTES}, 1, 5.0 * BYTES) == BYTES
    assert owed([], {}, 1, BYTES) == 0

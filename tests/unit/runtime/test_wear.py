"""When key groups are saved."""

from __future__ import annotations

from anabranch.runtime.wear import GROWTH, LATE_EPOCHS, ROWS_MIN, Wear, due

ROWS = 10 * ROWS_MIN
GROUPS = 64
SIZES = dict.fromkeys(range(GROUPS), ROWS)


def worn(rows: int, epoch: int = 0) -> dict[int, Wear]:
    return {group: Wear(epoch, rows) for group in SIZES}


def test_what_has_not_changed_is_never_saved() -> None:
    assert due(worn(0), SIZES, 100 * LATE_EPOCHS, 0) == []


def test_few_changes_are_saved_late() -> None:
    assert due(worn(1), SIZES, LATE_EPOCHS - 1, 1) == []
    assert due(worn(1), SIZES, LATE_EPOCHS, 1)


def test_many_changes_are_saved_early() -> None:
    many = int(GROWTH * ROWS)
    assert due(worn(many - 1), SIZES, 1, ROWS) == []
    assert due(worn(many), SIZES, 1, ROWS)


def test_small_groups_wait_until_a_file_is_worth_it() -> None:
    sizes = dict.fromkeys(range(GROUPS), 10)
    assert due(worn(500), sizes, 1, 500) == []
    assert due(worn(ROWS_MIN), sizes, 1, 500)


def test_the_most_worn_come_first() -> None:
    wear = worn(ROWS)
    wear[7].rows = 5 * ROWS
    assert due(wear, SIZES, 1, 1)[0] == 7


def test_no_epoch_pays_for_all_yet_all_are_saved_in_time() -> None:
    """Uniform load: everything becomes due at once."""
    changed = GROUPS * ROWS // 40
    wear = worn(0)
    saved_at: dict[int, list[int]] = {group: [] for group in SIZES}
    most = 0
    for epoch in range(1, 400):
        for group in SIZES:
            wear[group].rows += changed // GROUPS
        chosen = due(wear, SIZES, epoch, changed)
        most = max(most, len(chosen))
        for group in chosen:
            wear[group] = Wear(epoch)
            saved_at[group].append(epoch)
    assert 0 < most * ROWS <= 3 * changed
    longest = max(wear[group].rows for group in SIZES)
    assert longest <= 2 * GROWTH * ROWS
    assert min(map(len, saved_at.values())) >= 5

"""Epochs as numbers: what was there before the first one is less than all of them."""

from __future__ import annotations

import pytest

from anabranch.model.ids import BEFORE_FIRST, epoch_of, number_of


@pytest.mark.parametrize("epoch", [None, 0, 1, 2**40])
def test_there_and_back(epoch: int | None) -> None:
    assert epoch_of(number_of(epoch)) == epoch


def test_no_epoch_is_before_the_first() -> None:
    assert number_of(None) == BEFORE_FIRST < number_of(0) < number_of(1)

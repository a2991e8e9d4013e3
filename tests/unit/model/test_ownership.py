"""Owners over time: pictures and changes give back what was."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from anabranch.model.ids import WorkerId
from anabranch.model.ownership import Owned, by_number, changes, whole
from anabranch.model.routing import Routing

WORKERS = [WorkerId(f"w{number}") for number in range(1, 12)]
owners = st.lists(st.sampled_from(WORKERS), min_size=8, max_size=8).map(tuple)


@given(st.lists(owners, min_size=1, max_size=6))
def test_notes_give_back_the_owners(several: list[tuple[WorkerId, ...]]) -> None:
    routings = [Routing(version, each) for version, each in enumerate(several, 1)]
    owned = Owned().after(whole(routings[0]))
    for before, after in pairwise(routings):
        owned = owned.after(changes(before, after))
        assert owned == Owned(after.version, after.owners)
    assert Owned.of([whole(routings[-1])]).owners == routings[-1].owners


def test_changes_of_a_picture_that_is_gone_say_nothing() -> None:
    before, after = Routing(1, (WORKERS[0],)), Routing(2, (WORKERS[1],))
    assert Owned().after(changes(before, after)) == Owned()


def test_workers_are_in_the_order_of_their_numbers() -> None:
    assert sorted(["w10", "w2", "other"], key=by_number) == ["other", "w2", "w10"]
    assert whole(Routing(1, (WORKERS[9], WORKERS[1])))["workers"] == ["w2", "w10"]

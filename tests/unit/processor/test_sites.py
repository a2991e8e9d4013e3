"""Sites of a location: which key groups they have, and which changes their state survives."""

from __future__ import annotations

import pytest

from anabranch.errors import InvalidArgument
from anabranch.processor.sites import PLACED_BY, PlacedBy, Sites, hash_of_site, site_changes


@pytest.mark.parametrize(
    ("sites", "groups", "width"),
    [(1, 256, 16), (6, 256, 16), (7, 256, 8), (13, 256, 4), (90, 256, 1), (3, 64, 8), (1, 1, 1)],
)
def test_sites_have_many_key_groups_and_room_for_as_many_sites_more(
    sites: int, groups: int, width: int
) -> None:
    if groups == 1:
        with pytest.raises(InvalidArgument, match="for 0 declared sites"):
            Sites.first(["a"], groups)
        return
    found = Sites.first([f"site-{n}" for n in range(sites)], groups)
    assert found.space.width == width
    assert found.space.capacity >= 2 * sites
    assert found.space.shared >= 1


def test_more_sites_change_nothing_for_those_that_there_are() -> None:
    before = Sites.first(["berlin", "paris"], 64)
    after = before.with_more(["oslo", "paris"])
    assert after.names == ("berlin", "paris", "oslo")
    for site in ("berlin", "paris", "rome", None):
        assert after.groups_of(site) == before.groups_of(site)
    assert set(after.groups_of("oslo")).isdisjoint(
        {g for site in ("berlin", "paris", "rome", None) for g in after.groups_of(site)}
    )
    assert Sites.described(after.description, 64) == after


def test_too_many_sites_are_refused() -> None:
    with pytest.raises(InvalidArgument, match=r"for 6 declared sites.*with 8 key groups each; 7 w"):
        Sites.first([str(n) for n in range(7)], 64, 8)


def test_without_declared_sites_all_share_all_ranges() -> None:
    sites = Sites.first([], 256)
    assert {len(sites.groups_of(f"s{n}")) for n in range(300)} == {4}
    assert len({group for n in range(2000) for group in sites.groups_of(f"s{n}")}) == 256
    with pytest.raises(InvalidArgument, match="for 0 declared sites"):
        sites.with_more(["berlin"])


def test_a_column_must_have_a_name() -> None:
    sites = Sites.first(["berlin"], 64)
    assert sites.by(None) is None
    assert sites.by("site") == PlacedBy("site", sites)
    with pytest.raises(InvalidArgument, match="placed_by must be the name of a key column, got 3"):
        sites.by(3)


def test_what_may_change() -> None:
    sites = Sites.first(["berlin", "paris"], 64)
    by = {PLACED_BY: PlacedBy("site", sites).description}

    def changes(column: str, now: Sites) -> list[str]:
        return site_changes(by, {PLACED_BY: PlacedBy(column, now).description})

    assert changes("site", sites) == changes("site", sites.with_more(["oslo"])) == []
    assert site_changes({}, {}) == []
    assert "by the hash of the key, now" in site_changes({}, by)[0]
    assert "now keys would be looked for by the hash" in site_changes(by, {})[0]
    assert changes("place", sites) == ["placed_by: it was 'site', now it is 'place'"]
    (found,) = changes("site", Sites.first(["paris", "berlin"], 64))
    assert "the sites were berlin, paris" in found
    (found,) = changes("site", Sites.first(["berlin", "paris"], 64, 2))
    assert "key_groups_each was 8, now it is 2" in found


def test_the_hash_of_no_site_is_the_seed() -> None:
    assert hash_of_site(None) == 42

"""What is said of a folder that is more or less open than it was asked to be."""

from __future__ import annotations

from pathlib import Path

import pytest

from anabranch.state.access import PRIVATE, SHARED, access_warning, make_folders


@pytest.mark.parametrize(
    ("outer", "inner", "shared", "said"),
    [
        (0o755, 0o755, False, "chmod -R go-rwx"),
        (0o755, 0o700, False, None),
        (0o700, 0o755, False, None),
        (0o755, None, False, None),
        (0o700, 0o700, True, "chmod -R g+rX"),
        (0o755, 0o700, True, "chmod -R g+rX"),
        (0o750, 0o750, True, None),
        (0o750, None, True, None),
        (None, None, True, None),
    ],
)
def test_the_warning(
    tmp_path: Path, outer: int | None, inner: int | None, shared: bool, said: str | None
) -> None:
    place = tmp_path / "state"
    for folder, mode in ((place, outer), (place / "operators", inner)):
        if mode is not None:
            folder.mkdir()
    for folder, mode in ((place / "operators", inner), (place, outer)):
        if mode is not None:
            folder.chmod(mode)
    warning = access_warning(str(place), str(place / "operators"), shared)
    place.chmod(0o700) if outer is not None else None
    assert (warning is None) == (said is None)
    assert said is None or said in str(warning)
    assert warning is None or str(place) in warning


def test_only_missing_folders_are_made(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir(0o755)
    made = make_folders(str(tmp_path / "mine" / "a" / "b"), PRIVATE)
    assert made == [str(tmp_path / "mine" / "a"), str(tmp_path / "mine" / "a" / "b")]
    assert [Path(name).stat().st_mode & 0o777 for name in made] == [0o700, 0o700]
    assert (tmp_path / "mine").stat().st_mode & 0o777 == 0o755
    assert not make_folders(str(tmp_path / "mine"), SHARED)


def test_a_link_keeps_what_others_may_do() -> None:
    assert PRIVATE.fits(0o100600)
    assert not PRIVATE.fits(0o100644)
    assert SHARED.fits(0o100640)
    assert not SHARED.fits(0o100600)

"""A picture says which file it was drawn from, and stays a picture."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from anabranch.loadtest.picture_source import note_source, source_of


def test_a_picture_says_what_it_was_drawn_from(tmp_path: Path) -> None:
    pyplot = pytest.importorskip("matplotlib.pyplot", reason="needs matplotlib")
    picture, first, second = (tmp_path / name for name in ("p.png", "a.json", "b.json"))
    first.write_text("{}")
    second.write_text("[]")
    figure, axes = pyplot.subplots()
    axes.plot([1, 3, 2])
    figure.savefig(picture)
    pyplot.close(figure)
    pixels = pyplot.imread(picture)
    assert source_of(picture) is None
    note_source(picture, None)
    assert source_of(picture) is None
    for source in (first, second):
        note_source(picture, source)
        assert source_of(picture) == hashlib.sha256(source.read_bytes()).hexdigest()
    assert picture.read_bytes().count(b"Drawn from") == 1
    assert (pyplot.imread(picture) == pixels).all()

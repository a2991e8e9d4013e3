"""Every error is in the tree that users read, in `__all__` and in the operations guide."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from anabranch import errors
from anabranch.errors import AnabranchError, InvalidArgument, error_from_condition, needs_extra

GUIDE = Path(__file__).parents[2] / "docs" / "operations.md"
CLASSES = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, AnabranchError)
]


def drawn_parents() -> dict[str, str]:
    """Name of each class in the drawing, with that of the class above it."""
    parents, above = {}, list[str]()
    for line in (errors.__doc__ or "").splitlines():
        found = re.match(r"([│├└─ ]*)([A-Z]\w+) {2,}", line)
        if found:
            depth = len(found[1]) // 4
            above[depth:] = [found[2]]
            parents[found[2]] = above[depth - 1] if depth else ""
    return parents


def test_the_drawing_is_the_tree() -> None:
    bases = {kind.__name__: kind.__bases__[0].__name__ for kind in CLASSES}
    assert drawn_parents() == {**bases, "AnabranchError": ""}


def test_all_of_them_are_public() -> None:
    assert {kind.__name__ for kind in CLASSES} <= set(errors.__all__)
    assert all(hasattr(errors, name) for name in errors.__all__)


def test_the_guide_says_what_to_do_about_each() -> None:
    found = re.findall(r"^\| `([A-Z_.]+)` \| `(\w+)` \|", GUIDE.read_text("utf-8"), re.MULTILINE)
    assert dict(found) == {kind.condition: kind.__name__ for kind in CLASSES}


@pytest.mark.parametrize("kind", CLASSES)
def test_conditions_name_their_class(kind: type[AnabranchError]) -> None:
    made = error_from_condition(kind.condition, "why")
    assert type(made) is kind
    assert made.getCondition() == kind.condition


def test_an_extra_that_is_missing() -> None:
    error = needs_extra("This needs that", "plot", ", or leave it")
    assert isinstance(error, InvalidArgument)
    said = "This needs that. Install the extra 'plot': pip install '.[plot]' in a clone of "
    assert said + "Anabranch, or leave it." in str(error)

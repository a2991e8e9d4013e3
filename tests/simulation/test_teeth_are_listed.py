"""A mutation that no test runs would only look like cover."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

TEETH = sorted(Path(__file__).parent.glob("test_*teeth.py"))


def mutations(tree: ast.Module) -> set[str]:
    """Functions that change the code under test."""
    functions = (node for node in tree.body if isinstance(node, ast.FunctionDef))
    return {f.name for f in functions if [argument.arg for argument in f.args.args] == ["patch"]}


def used_by_tests(tree: ast.Module) -> Iterator[str]:
    """Names in the lists of the module and in its tests."""
    for node in tree.body:
        is_test = isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
        if is_test or isinstance(node, ast.Assign | ast.AnnAssign):
            yield from (name.id for name in ast.walk(node) if isinstance(name, ast.Name))


@pytest.mark.parametrize("path", TEETH, ids=lambda path: path.stem)
def test_every_mutation_is_listed(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    assert mutations(tree)
    assert mutations(tree) - set(used_by_tests(tree)) == set()

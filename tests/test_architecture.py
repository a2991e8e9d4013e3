"""The rules of the code base that no linter knows, as tests."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "anabranch"
BENCHMARKS = ROOT / "benchmarks" / "src" / "anabranch_bench"
MODULES = sorted([*SOURCE.rglob("*.py"), *BENCHMARKS.rglob("*.py")])
MODULE_LINES_MAX = 400
MACHINE_LINES_MAX = 600
"""Of a state machine: cut in two, nobody sees all that it can do."""
MACHINES = tuple(
    SOURCE / "protocol" / f"{name}.py"
    for name in ("coordinator", "move_run", "residency", "worker")
)
FUNCTION_LINES_MAX = 70

TESTS = ROOT / "tests"
UNIT_TESTS = {TESTS / "unit": SOURCE, ROOT / "benchmarks" / "tests" / "unit": BENCHMARKS}
"""Each folder, and what it mirrors."""
TEST_HELPERS = sorted(
    path
    for folder in (TESTS, ROOT / "benchmarks" / "tests")
    for path in folder.rglob("*.py")
    if not path.name.startswith("test_")
)

CAMEL_CASE = re.compile(r"_?[A-Z]+[a-z]\w*")

PURE_FOLDERS = ("autoscale", "protocol", "migration", "model")
"""Events in, effects out: the same code runs in production and under the simulator."""

IMPURE = {
    "asyncio",
    "concurrent",
    "datetime",
    "io",
    "logging",
    "multiprocessing",
    "os",
    "pandas",
    "pathlib",
    "pyarrow",
    "pyspark",
    "queue",
    "random",
    "secrets",
    "selectors",
    "shutil",
    "signal",
    "socket",
    "ssl",
    "subprocess",
    "tempfile",
    "threading",
    "time",
    "urllib",
    "uuid",
}


def each_module(paths: list[Path]) -> pytest.MarkDecorator:
    names = [
        path.relative_to(SOURCE.parent if SOURCE in path.parents else BENCHMARKS.parent).as_posix()
        for path in paths
    ]
    return pytest.mark.parametrize("path", paths, ids=names)


def each_file(paths: list[Path]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("path", paths, ids=[str(p.relative_to(ROOT)) for p in paths])


def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def imported_packages(tree: ast.Module) -> Iterator[str]:
    """Top-level packages that a module imports anywhere, also inside functions."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (name.name.split(".")[0] for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module.split(".")[0]


@each_module(MODULES)
def test_modules_are_short(path: Path) -> None:
    lines = len(path.read_text(encoding="utf-8").splitlines())
    limit = MACHINE_LINES_MAX if path in MACHINES else MODULE_LINES_MAX
    assert lines <= limit, "too long: find the second concept in it and move it out"


@each_module(MODULES)
def test_functions_are_short(path: Path) -> None:
    functions = (
        node
        for node in ast.walk(parse(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )
    too_long = {
        f"{function.name}, line {function.lineno}": length
        for function in functions
        if (length := (function.end_lineno or 0) - function.lineno + 1) > FUNCTION_LINES_MAX
    }
    assert not too_long


@each_module(MODULES)
def test_modules_and_public_classes_say_their_purpose(path: Path) -> None:
    tree = parse(path)
    assert ast.get_docstring(tree), "no module docstring"
    silent = [
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        and not node.name.startswith("_")
        and not ast.get_docstring(node)
    ]
    assert not silent, "classes without a docstring"


def named_at_the_top(tree: ast.Module) -> Iterator[tuple[str, bool]]:
    """Classes and aliases of types, and whether each is a class."""
    for node in tree.body:
        match node:
            case ast.ClassDef():
                yield node.name, True
            case ast.Assign(targets=[ast.Name(id=name)]) if CAMEL_CASE.fullmatch(name):
                yield name, False


def test_no_two_classes_have_one_name() -> None:
    """A class shares its name with nothing. Modules may each have an alias of the same name."""
    found: dict[str, list[Path]] = {}
    classes: set[str] = set()
    for path in MODULES:
        for name, is_class in named_at_the_top(parse(path)):
            found.setdefault(name, []).append(path.relative_to(ROOT))
            classes.update({name} if is_class else ())
    assert {name: found[name] for name in sorted(classes) if len(found[name]) > 1} == {}


@each_module([path for folder in PURE_FOLDERS for path in sorted((SOURCE / folder).rglob("*.py"))])
def test_pure_folders_touch_nothing_outside(path: Path) -> None:
    assert not IMPURE & set(imported_packages(parse(path)))


def test_machines_exist() -> None:
    assert all(path in MODULES for path in MACHINES)


@each_file([path for folder in UNIT_TESTS for path in sorted(folder.rglob("test_*.py"))])
def test_unit_tests_mirror_the_source(path: Path) -> None:
    """`tests/unit/x/test_y.py` tests the module `x/y.py`, or all of the package `x/y`."""
    ((tests, source),) = ((t, s) for t, s in UNIT_TESTS.items() if t in path.parents)
    folder = source / path.parent.relative_to(tests)
    name = path.stem.removeprefix("test_")
    assert (folder / f"{name}.py").exists() or (folder / name / "__init__.py").exists()


@each_file(TEST_HELPERS)
def test_helpers_of_tests_say_their_purpose(path: Path) -> None:
    said = (ast.get_docstring(parse(path)) or "").partition("\n")[0]
    assert said.endswith((".", ":")), "the first line of the docstring says what it is for"


def test_public_names_resolve() -> None:
    package = importlib.import_module("anabranch")
    names = getattr(package, "__all__", [])
    assert len(names) == len(set(names))
    missing = [name for name in names if not hasattr(package, name)]
    assert not missing


def test_the_document_has_all_folders_and_layers() -> None:
    text = (ROOT / "docs" / "ARCHITECTURE.md").read_text(encoding="utf-8")
    settings = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    listed = re.search(r"^layers = \[(.*?)^\]", settings, re.DOTALL | re.MULTILINE)
    assert listed
    layers = " → ".join(re.findall(r'"(.*?)"', listed[1]))
    assert f"`{layers}`" in text
    folders = [path.parent.name for path in SOURCE.glob("*/__init__.py")]
    missing = [name for name in folders if f"| `{name}/` |" not in text]
    assert folders
    assert not missing


def test_the_table_of_tests_has_all_folders() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    folders = [path.name for path in (ROOT / "tests").iterdir() if any(path.glob("**/test_*.py"))]
    assert folders
    assert not [name for name in folders if f"| `tests/{name}` |" not in text]

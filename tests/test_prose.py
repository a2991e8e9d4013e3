"""The documents are read once: short sentences, plain words, lines that fit a terminal."""

from __future__ import annotations

import ast
import inspect
import itertools
import pydoc
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    [
        *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
        ROOT / "benchmarks" / "README.md",
        ROOT / "benchmarks" / "results" / "README.md",
        *(ROOT / "docs").rglob("*.md"),
    ]
)
SOURCE = ROOT / "src" / "anabranch"
MODULES = sorted([*SOURCE.rglob("*.py"), *(ROOT / "benchmarks" / "src").rglob("*.py")])
SENTENCE_CHARACTERS_MAX = 200
LINE_COLUMNS_MAX = 120

BANNED = {
    "anew": "again",
    "but for": "except",
    "for ever": "bounded, or forever",
    "go on": "continue",
    "goes on": "continues",
    "going on": "continuing",
    "went on": "continued",
    "in silence": "silently",
    "lately": "recent",
    "mend": "fix",
    "mended": "fixed",
    "mending": "fixing",
    "mends": "fixes",
    "shall": "must, or say it plainly",
    "take its place": "replace it",
    "take the place of": "replace",
    "takes its place": "replaces it",
    "takes the place of": "replaces",
    "taken its place": "replaced it",
    "took its place": "replaced it",
    "that run": "running",
    "that runs": "running",
    "that wait": "deferred",
    "that waits": "deferred",
    "wherefrom": "from where",
}
"""Words that read as translated, with what to say instead."""

FOLDERS = sorted(path.parent.name for path in (ROOT / "src" / "anabranch").glob("*/__init__.py"))
MODULE = rf"(?:{'|'.join(FOLDERS)})/[\w/]+\.py"
"""A module of the package, named as in ARCHITECTURE.md."""
CODE_OR_TABLE = re.compile(r"\s*([|#<]|!\[)|^`[^`]*`$")
MARKERS = re.compile(r"^\s*(?:[-*] |\d+\. |> )")
"""The beginning of a list item or of a quotation."""
END_OF_SENTENCE = re.compile(r"(?<=[.!?])[)\"*_]*\s+|(?<=:)\s*$")


def prose(text: str) -> Iterator[tuple[int, str]]:
    """Lines that people read as sentences, with their numbers; "" where a block ends.

    A line that is nothing but code is code.
    """
    fence = ""
    for number, line in enumerate(text.splitlines(), 1):
        mark = re.match(r"\s*(`{3,}|:{3,})", line)
        if mark:
            fence = "" if fence and mark[1].startswith(fence) else fence or mark[1]
            yield number, ""
        elif fence or CODE_OR_TABLE.match(line):
            yield number, ""
        else:
            yield number, line


def blocks(text: str) -> Iterator[tuple[int, str]]:
    """Paragraphs and list items as one line each, with the number of their first line."""
    start, parts = 0, list[str]()
    for number, line in [*prose(text), (0, "")]:
        begins = MARKERS.match(line)
        if parts and (begins or not line.strip()):
            yield start, " ".join(parts)
            parts = []
        if line.strip():
            start = start if parts else number
            parts.append(MARKERS.sub("", line).strip())


def shown(block: str) -> str:
    """What a reader sees: links without their targets."""
    return re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", block)


def sentences(text: str) -> Iterator[tuple[int, str]]:
    """Sentences of a page with the number of the line on which their paragraph begins."""
    for number, block in blocks(text):
        for sentence in END_OF_SENTENCE.split(shown(block)):
            yield number, sentence


each_page = pytest.mark.parametrize(
    "page", PAGES, ids=[page.relative_to(ROOT).as_posix() for page in PAGES]
)


def test_sentences_are_found() -> None:
    text = "One. Two\nis [long](x.md).\n\n- an (a.b)\n  item\n- next\n\n```\nno.\n```\n| no. |\n"
    found = [sentence for _, sentence in sentences(text)]
    assert found == ["One.", "Two is long.", "an (a.b) item", "next"]


@each_page
def test_sentences_are_short(page: Path) -> None:
    too_long = [
        f"line {number}: {len(sentence)} characters: {sentence}"
        for number, sentence in sentences(page.read_text(encoding="utf-8"))
        if len(sentence) > SENTENCE_CHARACTERS_MAX
    ]
    assert not too_long, "\n".join(too_long)


@each_page
def test_lines_fit_a_terminal(page: Path) -> None:
    too_long = [
        f"line {number}: {len(line)} columns"
        for number, line in prose(page.read_text(encoding="utf-8"))
        if len(line) > LINE_COLUMNS_MAX
    ]
    assert not too_long, "\n".join(too_long)


@each_page
def test_words_are_plain(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    found = [
        f"line {text.count(chr(10), 0, match.start()) + 1}: '{word}': say {better}"
        for word, better in BANNED.items()
        for match in re.finditer(rf"\b{word.replace(' ', chr(92) + 's+')}\b", text, re.IGNORECASE)
    ]
    assert not found, "\n".join(found)


@each_page
def test_links_resolve(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    targets = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text)
    missing = [t for t in targets if "://" not in t and not (page.parent / t).exists()]
    assert not missing


@each_page
def test_files_of_the_repository_that_are_named_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    named = re.findall(r"`((?:tests|docs|src|benchmarks|scripts)/[\w./-]+)`", text)
    named += [f"src/anabranch/{path}" for path in re.findall(rf"`({MODULE})`", text)]
    assert not [path for path in named if not (ROOT / path).exists()]


ERRORS = set(
    re.findall(
        r"^class (\w+)\(",
        (ROOT / "src" / "anabranch" / "errors.py").read_text(encoding="utf-8"),
        re.MULTILINE,
    )
)


def messages(path: Path) -> Iterator[str]:
    """What errors say that are made in a module; values are left out."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Call) or not node.args:
            continue
        if getattr(node.func, "id", getattr(node.func, "attr", "")) in ERRORS:
            yield text_of(node.args[0])


def text_of(node: ast.expr) -> str:
    """The literal part of a text."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr():
            return "".join(text_of(part) for part in node.values)
        case ast.BinOp():
            return text_of(node.left) + text_of(node.right)
        case _:
            return ""


def flaws(text: str) -> list[str]:
    """What a text has that the documents may not have."""
    long = [part for part in END_OF_SENTENCE.split(text) if len(part) > SENTENCE_CHARACTERS_MAX]
    return long + [word for word in BANNED if re.search(rf"\b{word}\b", text, re.IGNORECASE)]


def flaws_of(texts: Iterable[tuple[str, str]]) -> list[str]:
    return [f"{where}: {flaw}" for where, text in texts for flaw in flaws(text)]


def test_messages_of_errors_are_plain() -> None:
    found = [(path.name, text) for path in MODULES for text in messages(path)]
    assert len(found) > 100
    assert not flaws_of(found)


def helps(path: Path) -> Iterator[str]:
    """What the command line says of itself."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.keyword) and node.arg in ("help", "description", "epilog"):
            yield text_of(node.value)


def test_help_of_commands_is_plain() -> None:
    found = [(path.name, text) for path in MODULES if "cli" in path.parts for text in helps(path)]
    assert len(found) > 100
    assert not flaws_of(found)


def referenced() -> set[Path]:
    """Modules whose docstrings are pages of the reference."""
    found: set[Path] = set()
    for page in (ROOT / "docs" / "reference").glob("*.md"):
        directives = r"\.\. auto\w+:: ([\w.]+)"
        for name in re.findall(directives, page.read_text(encoding="utf-8")):
            target = pydoc.locate(name)
            assert target is not None, name
            classes = target.__mro__ if isinstance(target, type) else (target,)
            files = {inspect.getsourcefile(c) for c in classes if c is not object}  # type: ignore[arg-type]
            found.update(Path(file) for file in files if file and SOURCE in Path(file).parents)
    return found


CODE_OR_TREE = re.compile(r"^ *(?:>>>|[├└│]|def )", re.MULTILINE)


def docstrings(path: Path) -> Iterator[str]:
    """Paragraphs of its module, classes, functions and fields."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            for paragraph in inspect.cleandoc(str(node.value.value)).split("\n\n"):
                if not CODE_OR_TREE.search(paragraph):
                    yield from by_indentation(paragraph)


def by_indentation(paragraph: str) -> Iterator[str]:
    """Names of parameters are not part of the sentences below them."""
    lines = paragraph.splitlines()
    for _, some in itertools.groupby(lines, lambda line: len(line) - len(line.lstrip())):
        yield " ".join(line.strip() for line in some)


def test_docstrings_of_the_reference_are_plain() -> None:
    found = [(path.name, text) for path in sorted(referenced()) for text in docstrings(path)]
    assert len(found) > 100
    assert not flaws_of(found)

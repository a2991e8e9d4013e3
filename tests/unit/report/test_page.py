"""The page is one file, says everything, and runs nothing."""

from __future__ import annotations

import re
from datetime import timedelta
from html.parser import HTMLParser
from typing import Any

from tests.unit.report.entries import NASTY, START, rows

from anabranch.report.chart import BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH
from anabranch.report.page import fragment, page
from anabranch.report.span import Span


class Tags(HTMLParser):
    """Counts elements, and refuses those that are not closed in order."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, Any]]] = []
        self._open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag not in ("meta", "br"):
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def close(self) -> None:
        super().close()
        assert not self._open


def tags(text: str) -> list[tuple[str, dict[str, Any]]]:
    parser = Tags()
    parser.feed(text)
    parser.close()
    return parser.found


def test_it_is_one_file_that_asks_for_nothing() -> None:
    text = page("What happened", ["state/orders: died"], Span.of(rows()))
    found = tags(text)
    names = {tag for tag, _ in found}
    assert not names & {"script", "link", "img", "iframe", "object"}
    assert not any(name in about for _, about in found for name in ("src", "href", "onload"))
    assert "http:" not in text.replace("http-equiv", "")
    assert "url(" not in text
    (policy,) = (about for tag, about in found if about.get("http-equiv"))
    assert policy["content"].startswith("default-src 'none'")
    assert "state/orders: died" in text


def test_what_users_wrote_is_text() -> None:
    text = page(NASTY, [NASTY], Span.of(rows()))
    assert "<script" not in text
    assert text.count("&lt;script&gt;") >= 4  # title twice, about, the event and its mark


def test_all_pictures_have_names_and_values_within_their_frame() -> None:
    text = page("x", [], Span.of(rows()))
    pictures = [about for tag, about in tags(text) if tag == "svg"]
    assert [about["aria-label"].partition(",")[0] for about in pictures] == [
        "Time of each batch",
        "Throughput",
        "Where the slowest transaction of a batch spent its time",
        "Workers that apply",
    ]
    points = re.findall(r'points="([^"]+)"', text)
    assert points
    for pair in " ".join(points).split():
        x, y = map(float, pair.split(","))
        assert LEFT <= x <= WIDTH - RIGHT
        assert TOP <= y <= HEIGHT - BOTTOM


def test_reconfigurations_are_shaded_and_deaths_are_marked() -> None:
    found = tags(page("x", [], Span.of(rows())))
    moves = [about for tag, about in found if about.get("class") == "move"]
    deaths = [about for tag, about in found if tag == "line" and about.get("class") == "bad"]
    assert len(moves) == len(deaths) == 4
    share = 45 / 100
    assert abs(float(moves[0]["x"]) - (LEFT + share * (WIDTH - LEFT - RIGHT))) < 1


def test_a_day_stays_small() -> None:
    found = rows()
    day = [
        {**row, "time": row["time"] + timedelta(seconds=100 * part), "epoch": 100 * part}
        for part in range(864)
        for row in found
        if row["kind"] == "batch"
    ]
    assert len(day) == 86_400
    assert len(page("x", [], Span.of(day))) < 300_000


def test_a_span_of_nothing_says_so() -> None:
    assert "Nothing is written down" in fragment("x", [], Span.of([], START, START + 60))

"""The page's files, and how a browser comes to them."""

from __future__ import annotations

from pathlib import Path

from tests.unit.http.scripted import Client

from anabranch.http.page import PageFiles
from anabranch.http.server import HttpServer


def built(folder: Path) -> Path:
    """A page as the build leaves it."""
    (folder / "assets").mkdir(parents=True)
    (folder / "index.html").write_text("<!doctype html><title>Page</title>")
    (folder / "assets" / "index-1.js").write_text("let a = 1;")
    (folder / "secret.txt").write_text("secret")
    return folder


def test_without_node_a_sentence_says_so(tmp_path: Path) -> None:
    answer = PageFiles(tmp_path).front()
    assert b"the page is not there" in answer.body
    assert b"commands" in answer.body


def test_files_of_the_build_and_no_others(tmp_path: Path) -> None:
    files = PageFiles(built(tmp_path))
    assert b"<title>Page</title>" in files.front().body
    script = files.asset("index-1.js")
    assert script is not None
    assert script.headers["content-type"].startswith("text/javascript")
    assert "immutable" in script.headers["cache-control"]
    for name in ("../secret.txt", "..", ".", "missing.js", "a/b", ".hidden", ""):
        assert files.asset(name) is None, name


def test_a_browser_logs_in_and_gets_the_page(server: HttpServer) -> None:
    with Client(server, None) as browser:
        assert browser.get("/").status_code == 401
        link = server.login_url
        assert 'url=/"' in browser.get(link).text
        again = browser.get(link)
        assert (again.status_code, again.headers["location"]) == (303, "/")
        session = browser.api("GET", "/session").json()
        assert session["role"] == "operate"
        assert session["is_live"] is True
        assert session["location"].endswith("state")
        assert browser.get("/assets/..%2Fsecret.txt").status_code == 404


def test_a_command_asks_for_a_link(server: HttpServer, operator: Client, reader: Client) -> None:
    assert reader.api("POST", "/logins").status_code == 403
    made = operator.api("POST", "/logins")
    assert made.status_code == 201
    with Client(server, None) as browser:
        assert browser.get(made.json()["url"]).status_code == 200
        assert browser.api("GET", "/status").status_code == 200


def test_what_the_page_asks_for(reader: Client) -> None:
    assert reader.api("GET", "/ownership").json()["workers"] == ["w1"]
    loads = reader.api("GET", "/group-loads").json()
    assert loads == {"rows": [0, 1, 2, 0, 1, 2, 0, 1], "bytes": list(range(0, 80, 10))}
    assert reader.api("GET", "/utilisation").json() == {}
    assert reader.api("GET", "/findings").json() == []
    tape = reader.api("GET", "/tape", params={"since": 0}).json()
    assert tape["batches"]["epoch"] == [7]
    assert [mark["kind"] for mark in tape["marks"]] == ["service-started"]

"""`anabranch ui`: the page of a service in a browser; of one that has died, from its journal."""

from __future__ import annotations

import argparse
import time
import webbrowser
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from anabranch.durability.store import StateStore

    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]

DESCRIPTION = """\
Print a link to the page of a service, which works once, and open it with --open. If no service runs
on the location, serve a page that replays its journal, on loopback, until Ctrl-C.
"""


def register(subparsers: Subparsers) -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser(
        "ui",
        help="the page of a service, also of one that has died",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("location", help="folder or URI of the state")
    parser.add_argument("--open", action="store_true", help="open a browser")
    parser.add_argument(
        "--port", type=int, default=0, metavar="N", help="for a replay (default: a free one)"
    )
    parser.add_argument(
        "--replay", action="store_true", help="replay the journal even if a service runs"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Find the service, or be the server."""
    from anabranch.durability.store import StateStore
    from anabranch.errors import NotRunning
    from anabranch.http.client import ServiceClient

    store = StateStore(args.location).look()
    if not args.replay:
        try:
            url = str(ServiceClient.of(args.location).post("/logins")["url"])
        except NotRunning:
            pass
        else:
            _show(url, args.open)
            return 0
    return _replay(store, args)


def _show(url: str, is_opened: bool) -> None:
    print(url, flush=True)
    if is_opened and not webbrowser.open(url):
        print("There is no browser here. Open the link yourself; it works once.", flush=True)


def _replay(store: StateStore, args: argparse.Namespace) -> int:
    from anabranch.errors import needs_extra

    try:
        from anabranch.http.server import HttpServer
    except ImportError as error:
        raise needs_extra("`anabranch ui` needs the HTTP API", "ui") from error
    from anabranch.http.stored import StoredService

    server = HttpServer(StoredService(store), store.blobs, args.port, is_live=False)
    server.start()
    try:
        print(f"Nothing runs on {store.blobs.location}: its journal. Ctrl-C ends.", flush=True)
        _show(server.login_url, args.open)
        while True:
            time.sleep(3600)
    finally:
        server.stop()

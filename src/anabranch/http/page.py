"""The page: files that the front end's build has left here; their content is nobody's secret."""

from __future__ import annotations

import mimetypes
from dataclasses import dataclass
from pathlib import Path

from starlette.responses import HTMLResponse, PlainTextResponse, Response

FOLDER = Path(__file__).parent / "static"
INDEX = "index.html"
NOT_BUILT = (
    "Anabranch listens here, but the page is not there: it was installed from source without "
    "Node. API (/openapi.json), commands (`anabranch status LOCATION`) and /metrics work."
)
KINDS = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}

# The browser comes from wherever the link was: only a request that our own document makes brings
# the new cookie, as that is for requests from this site alone.
ENTER = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Anabranch</title>
<meta http-equiv="refresh" content="0; url=/"></head>
<body><p><a href="/">Go to the page</a></p></body></html>
"""


@dataclass(frozen=True, slots=True)
class PageFiles:
    """The built page, if there is one."""

    folder: Path = FOLDER

    @property
    def is_built(self) -> bool:
        """Whether there is anything to show."""
        return (self.folder / INDEX).is_file()

    def front(self) -> Response:
        """The document."""
        if not self.is_built:
            return PlainTextResponse(NOT_BUILT + "\n")
        return HTMLResponse((self.folder / INDEX).read_bytes())

    def asset(self, name: str) -> Response | None:
        """A file of the build; None: there is no such one."""
        path = self.folder / "assets" / name
        if "/" in name or name.startswith(".") or not path.is_file():
            return None
        kind = KINDS.get(path.suffix) or mimetypes.guess_type(name)[0] or "application/octet-stream"
        # Their names change with their content.
        headers = {"cache-control": "private, max-age=31536000, immutable"}
        return Response(path.read_bytes(), media_type=kind, headers=headers)


def enter() -> Response:
    """After the login."""
    return HTMLResponse(ENTER)

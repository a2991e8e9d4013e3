"""The documentation as a site: `make docs`."""

from __future__ import annotations

from importlib.metadata import version as installed_version
from typing import Any

project = "Anabranch"
author = "The Anabranch developers"
copyright = "The Anabranch developers. Apache-2.0"
version = release = installed_version("anabranch")

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinxcontrib.mermaid",
]

# Markdown: the same files that GitHub shows.
myst_heading_anchors = 4
myst_fence_as_directive = ["mermaid"]

# Docstrings: NumPy's sections, and code in single backquotes.
napoleon_google_docstring = False
default_role = "code"
add_module_names = False
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
python_maximum_signature_line_length = 88

html_theme = "furo"
html_title = "Anabranch"
# A browser without the network shows the diagrams as their text.
mermaid_output_format = "raw"


def _adapt_docstring(_app: Any, kind: str, *rest: Any) -> None:
    """Docstrings are for readers of the code, too: here is what they need for the site."""
    lines: list[str] = rest[-1]
    if kind == "module":
        lines.clear()  # the page says what it is for
    elif kind == "attribute" and lines:
        lines[0] = lines[0].replace(": ", " \N{EM DASH} ", 1)  # else Napoleon takes it for a type


def setup(app: Any) -> None:
    """Called by Sphinx."""
    app.connect("autodoc-process-docstring", _adapt_docstring, priority=400)  # before Napoleon

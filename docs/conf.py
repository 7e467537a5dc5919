"""The site of these pages: `python -m sphinx -W -b html docs build/site`, with the extra `docs`; nothing is downloaded.

The pages are Markdown that a forge shows too. Links to files outside of this folder become plain text in the site.
Pages of devices, libraries and data files are written when the site is built (`docs/site_pages.py`).
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sphinx.application import Sphinx

FOLDER = Path(__file__).parent
sys.path[:0] = [str(FOLDER.parent), str(FOLDER)]

import site_pages  # noqa: E402

from hwsim._version import __version__  # noqa: E402

project = "hwsim"
version = release = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["README.md"]  # the forge's index; the site's is index.md
html_theme = "furo"
html_title = f"hwsim {release}"
html_copy_source = False
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sphinx = False
myst_enable_extensions = ["colon_fence", "attrs_block"]
myst_heading_anchors = 4
napoleon_numpy_docstring = False
napoleon_custom_sections = [("Fields", "params_style")]
autodoc_typehints = "signature"
autodoc_member_order = "bysource"
suppress_warnings = ["misc.highlighting_failure"]  # console blocks show output that no lexer knows

LINK = re.compile(r"(?<!!)\[([^\]\n]*)\]\(([^)\s#]+)(#[^)\s]*)?\)")


def inside_only(text: str, page: Path) -> str:
    """A page's Markdown with links to local files outside of the site as plain text."""

    def plain(found: re.Match[str]) -> str:
        target = found[2]
        if "://" in target or target.startswith("mailto:"):
            return found[0]
        path = (page.parent / target).resolve()
        inside = path.is_relative_to(FOLDER) and path.suffix == ".md" and path.name not in exclude_patterns
        return found[0] if inside else found[1]

    return LINK.sub(plain, text)


def read(app: Sphinx, name: str, source: list[str]) -> None:
    """Sphinx's event `source-read`."""
    source[0] = inside_only(source[0], Path(app.env.doc2path(name)))


def write_pages(app: Sphinx) -> None:
    """Sphinx's event `builder-inited`."""
    site_pages.write(FOLDER / "generated")


def setup(app: Sphinx) -> None:
    """What Sphinx calls."""
    app.connect("builder-inited", write_pages)
    app.connect("source-read", read)

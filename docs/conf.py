"""The site of these pages: `python -m sphinx -W -b html docs build/site`, with the extra `docs`; nothing is downloaded.

The pages are Markdown that a forge shows too. Links to files outside of this folder become plain text in the site.
Pages of devices, libraries and data files are written when the site is built (`docs/site_pages.py`).
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sphinx.application import Sphinx

FOLDER = Path(__file__).parent
LABORATORY = FOLDER.parent / "lab" / "docs"
COPIES = FOLDER / "generated" / "laboratory"
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
html_js_files = ["site.js"]
html_show_copyright = False  # CITATION.cff and LICENSE say whose it is
html_show_sphinx = False
myst_enable_extensions = ["colon_fence", "attrs_block"]
myst_heading_anchors = 4
napoleon_numpy_docstring = False
napoleon_custom_sections = [("Options", "params_style"), ("Fields", "params_style")]
autodoc_typehints = "signature"
python_maximum_signature_line_length = 90  # of a longer signature, each parameter has a line
autodoc_member_order = "bysource"
suppress_warnings = ["misc.highlighting_failure"]  # console blocks show output that no lexer knows

OUTSIDE_CODE = r"(?=(?:[^`]*`[^`]*`)*[^`]*$)"  # an even number of backquotes follows
MARKS = re.compile(rf"\|{OUTSIDE_CODE}|(?<![\w*\\])\*(?![\w*]){OUTSIDE_CODE}")
ANY_ARRAY = re.compile(r"~?(numpy\.)?ndarray\[tuple\[[^][]*\], ~?(numpy\.)?dtype\[[^][]*\]\]")
LINK = re.compile(r"(?<!!)\[([^\]\n]*)\]\(([^)\s#]+)(#[^)\s]*)?\)")
IMAGE = re.compile(r"(!\[[^\]\n]*\])\(([^)\s]+)\)")


def inside_only(text: str, page: Path) -> str:
    """A page's Markdown with links as the site has them; links to files outside of it become plain text.

    page: the page's file in the site. Pages of the laboratory are copies: their links are of the original's folder.
    """
    original = LABORATORY / page.relative_to(COPIES) if page.is_relative_to(COPIES) else page

    def link(match: re.Match[str]) -> str:
        label, target, anchor = match[1], match[2], match[3] or ""
        if "://" in target or target.startswith("mailto:"):
            return match[0]
        file = in_site((original.parent / target).resolve())
        return label if file is None else f"[{label}]({os.path.relpath(file, page.parent)}{anchor})"

    def image(match: re.Match[str]) -> str:
        file = (original.parent / match[2]).resolve()
        return f"{match[1]}({os.path.relpath(file, page.parent)})" if file.is_relative_to(FOLDER) else match[0]

    return IMAGE.sub(image, LINK.sub(link, text))


def in_site(file: Path) -> Path | None:
    """The page of the site that a Markdown file of the repository becomes; None where it becomes none."""
    if file.is_relative_to(LABORATORY):
        file = COPIES / file.relative_to(LABORATORY)
    if file.name == "README.md":  # the index of a folder, as a forge shows it
        file = file.with_name("index.md")
    return file if file.is_relative_to(FOLDER) and file.suffix == ".md" else None


def read(app: Sphinx, name: str, source: list[str]) -> None:
    """Sphinx's event `source-read`."""
    source[0] = inside_only(source[0], Path(app.env.doc2path(name)))


def write_pages(app: Sphinx) -> None:
    """Sphinx's event `builder-inited`."""
    site_pages.write(FOLDER / "generated")


def short_side_bar(app: Sphinx, name: str, template: str, context: dict[str, Any], document: object) -> None:
    """Sphinx's event `html-page-context`: the side bar lists the pages of the first level, not those below them."""
    toctree = context["toctree"]
    context["toctree"] = lambda **asked: toctree(**asked | {"collapse": True, "maxdepth": 1})


def short_types(
    app: Sphinx, what: str, name: str, obj: object, options: object, signature: str | None, returned: str | None
) -> tuple[str | None, str | None]:
    """Sphinx's event `autodoc-process-signature`: an array of any shape and type is called an array."""
    shown = (None if text is None else ANY_ARRAY.sub("~numpy.ndarray", text) for text in (signature, returned))
    return next(shown), next(shown)


def plain_marks(app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """Sphinx's event `autodoc-process-docstring`: bars and lone stars of a docstring are themselves, not markup."""
    lines[:] = [MARKS.sub(r"\\\g<0>", line) for line in lines]


def setup(app: Sphinx) -> None:
    """What Sphinx calls."""
    app.connect("html-page-context", short_side_bar, priority=400)  # before the theme asks for all pages
    app.connect("builder-inited", write_pages)
    app.connect("source-read", read)
    app.connect("autodoc-process-signature", short_types)
    app.connect("autodoc-process-docstring", plain_marks, priority=400)  # before napoleon

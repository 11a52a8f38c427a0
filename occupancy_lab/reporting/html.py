"""A page as one HTML file that needs nothing else: pictures and style are inside it."""

from __future__ import annotations

import base64
import tempfile
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from occupancy_lab.plotting.style import save
from occupancy_lab.text.document import html_renderer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from markdown_it.renderer import RendererHTML
    from markdown_it.token import Token
    from markdown_it.utils import EnvType, OptionsDict

    from occupancy_lab.reporting.page import Page, Picture

STYLE = """\
:root { color-scheme: light dark; }
body { max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
body { font: 1rem/1.55 system-ui, sans-serif; }
h1, h2, h3 { line-height: 1.25; }
h2 { margin-top: 2.5rem; border-bottom: 1px solid #8884; padding-bottom: 0.2rem; }
table { display: block; overflow-x: auto; border-collapse: collapse; font-size: 0.9rem; }
th, td { padding: 0.25rem 0.7rem; border-bottom: 1px solid #8884; }
img { max-width: 100%; background: white; border-radius: 6px; }
pre { overflow-x: auto; padding: 0.8rem; background: #8882; border-radius: 6px; }
"""


def to_html(page: Page) -> str:
    """Return *page* as HTML; whatever looks like HTML in its text is shown as text."""
    pictures = {picture.name: picture for picture in page.pictures}

    def image(
        _renderer: RendererHTML,
        tokens: Sequence[Token],
        place: int,
        _options: OptionsDict,
        _environment: EnvType,
    ) -> str:
        return _image(pictures[str(tokens[place].attrs["src"])])

    renderer = html_renderer()
    renderer.add_render_rule("image", image)
    body = renderer.render(page.to_markdown(lambda picture: f"![]({picture.name})"))
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(page.title)}</title>\n<style>\n{STYLE}</style>\n</head>\n"
        f"<body>\n{body}</body>\n</html>\n"
    )


def _image(picture: Picture) -> str:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / f"{picture.name}.svg"
        save(picture.draw(), path)
        data = base64.b64encode(path.read_bytes()).decode()
    return f'<img alt="{escape(picture.words)}" src="data:image/svg+xml;base64,{data}">'

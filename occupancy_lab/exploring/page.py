"""Makes the page of `explore`: one HTML file with its style, its script and all that it knows."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from importlib.resources import files
from pathlib import Path

from occupancy_lab import __version__
from occupancy_lab.exploring.model import page_data
from occupancy_lab.files import check_outputs, export

_IMPORT = re.compile(r'^import (\{[^}]*\}) from "\./(\w+)\.js";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async )?(?:function\*?|class|const) (\w+))", re.MULTILINE)
_SLOT = re.compile(r"\{\{(\w+)\}\}")


def explore(output: Path | str = "explore.html", *, rows: Path | str | None = None) -> Path:
    """Write the page to *output* and return where it is.

    One HTML file that needs no server and no network: an SM or CU to play with, on every GPU of the
    table, by the formulas of the lab. *rows* is a CSV or JSON file of a sweep's or a scan's export,
    whose rows the page has too.

    Raises InputError where a file cannot be read or written.
    """
    check_outputs({"--output": output}, inputs={"--rows": rows})
    export(Path(output), make_page(rows))
    return Path(output)


def make_page(rows: Path | str | None = None) -> str:
    """Return the page as HTML."""
    style, script = _source("style.css"), bundle("main")
    policy = (
        f"default-src 'none'; script-src '{_digest(script)}'; style-src '{_digest(style)}';"
        " img-src data:; base-uri 'none'; form-action 'none'"
    )
    data = json.dumps(page_data(rows), separators=(",", ":"), allow_nan=False)
    slots = {
        "version": __version__,
        "policy": policy,
        "style": style,
        # Neither the end of the element nor a comment can be in the text of a script.
        "data": data.replace("<", "\\u003c"),
        "script": script,
    }
    return _SLOT.sub(lambda slot: slots[slot[1]], _source("index.html"))


def _source(name: str) -> str:
    return files("occupancy_lab.exploring").joinpath("page", name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def bundle(main: str) -> str:
    """Return the module *main* with all that it imports as one script.

    Each module is a block of its own, which leaves what it exports in an object.
    """
    blocks: dict[str, str] = {}
    _add(main, blocks)
    return "const modules = {};\n" + "\n".join(blocks.values())


def _add(name: str, blocks: dict[str, str]) -> None:
    source = _source(f"{name}.js")
    for _, other in _IMPORT.findall(source):
        if other not in blocks:
            _add(other, blocks)
    exported = ", ".join(_EXPORT.findall(source))
    text = _IMPORT.sub(r"const \1 = modules.\2;\n", source)
    text = _EXPORT.sub("", text)
    blocks[name] = f"{{\n{text}modules.{name} = {{ {exported} }};\n}}"

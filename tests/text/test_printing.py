"""Printed text cannot control a terminal or a GitHub runner, whatever it contains."""

import unicodedata
from collections.abc import Iterator

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from runner import commands_in

from occupancy_lab.text.document import (
    Commands,
    Document,
    Image,
    Section,
    Table,
    json_text,
    to_html,
)
from occupancy_lab.text.printing import print_note, print_shown, print_text

TEXTS = st.text(max_size=60) | st.text("ab :#[]&;x\x1b\x9b\r\n\u2028\u202e", max_size=60)


def everything(text: str) -> Document:
    """Return a document with *text* in every possible place."""
    tables = (Table((text, "b"), ((text, "c"),), text),)
    return Document(text, (text, f"**{text}**"), (Section(text, tables, (text, f"`{text}`")),))


def print_page(text: str) -> None:
    """Print a document full of *text*, and its lines as commands, on a terminal."""
    print_shown((*everything(text).blocks(), text, Commands((text,)), Image(text, text)))


PRINTERS = [print_text, print_page, print_note]


@pytest.fixture(scope="module", autouse=True)
def _on_github() -> Iterator[None]:
    """Simulate a GitHub runner with lines of 40 columns."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GITHUB_ACTIONS", "true")
        patch.setenv("COLUMNS", "40")
        yield


def unseen_in(text: str) -> set[str]:
    """Return the control, separator and direction characters of *text* except tab and newline."""
    turning = {"LRE", "RLE", "PDF", "LRO", "RLO", "LRI", "RLI", "FSI", "PDI"}
    return {
        one
        for one in text
        if one not in "\t\n"
        and (
            unicodedata.category(one) in {"Cc", "Zl", "Zp"}
            or unicodedata.bidirectional(one) in turning
        )
    }


@pytest.mark.parametrize("printer", PRINTERS)
@given(text=TEXTS)
@example(text="\x1b]0;title\x07 \x1b[2J\x9b31m \u202eabc\u2066\u2028\r::error::no\x7f")
@example(text="&#27;[31m &#x202e;abc &#x2028;::error::no")
@example(text="a word and another one, then some more ::set-output name=a::b")
@example(text="- ##[stop-commands]x")
def test_nothing_unseen_and_no_command_is_printed(printer, text: str) -> None:  # type: ignore[no-untyped-def] # noqa: ANN001 - any printer
    """No printed character controls a terminal, and no line is a runner's command."""
    with pytest.MonkeyPatch.context() as patch:
        written: list[str] = []
        patch.setattr("sys.stdout.write", written.append)
        patch.setattr("click.echo", lambda line, **_options: written.append(f"{line}\n"))
        printer(text)
    printed = "".join(written)
    assert not unseen_in(printed)
    assert not commands_in(printed)


def test_an_escape_stands_for_what_is_not_seen(capsys: pytest.CaptureFixture[str]) -> None:
    """An escape shows which character it replaces; a line like a command gets a space."""
    print_text("\x1b[31mred\u202e\r\n  ::error::x\n##[group]\n")
    expected = "\\x1b[31mred\\u202e\\r\n  : :error::x\n# #[group]\n"
    assert capsys.readouterr().out == expected


def test_elsewhere_colons_are_left_alone(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Outside a runner a line may begin with colons."""
    monkeypatch.delenv("GITHUB_ACTIONS")
    print_text("::error::x ##[group]\n")
    assert capsys.readouterr().out == "::error::x ##[group]\n"


def test_colours_do_not_hide_a_command(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With colours, a line whose first letters are two colons gets a space too."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    print_shown(("**::error::x**",))
    printed = capsys.readouterr().out
    assert "\x1b[1m: :error::x" in printed


@given(text=TEXTS)
def test_a_page_in_a_file_has_nothing_unseen(text: str) -> None:
    """Markdown that is exported or shown in a notebook is escaped too."""
    page = everything(text)
    assert not unseen_in(page.to_markdown())
    assert not unseen_in(to_html(page.blocks()))


def test_json_keeps_the_value() -> None:
    """JSON escapes runner commands in its own way and keeps the value."""
    import json

    text = json_text({"##[error]": "##[group]"})
    assert not commands_in(text)
    assert json.loads(text) == {"##[error]": "##[group]"}

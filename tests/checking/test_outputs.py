"""The outputs of `check` for CI systems: annotations, JUnit XML and SARIF."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any
from urllib.parse import unquote
from xml.etree import ElementTree as ET

import pytest
from compiled_rows import compiled, failed
from hostile_files import put
from hypothesis import example, given
from hypothesis import strategies as st
from in_process import run

from occupancy_lab.checking.check import check
from occupancy_lab.checking.outputs import place_of, relative, to_github, to_junit, to_sarif
from occupancy_lab.text.words import visible

TEXTS = st.text(min_size=1, max_size=30)
SPILLING = compiled("spilling", local_bytes=152, source="kernels/spill.py:24")


@pytest.fixture(autouse=True)
def repository(tmp_path: Path) -> Path:
    """Run each test in a repository of its own."""
    (tmp_path / ".git").mkdir()
    return tmp_path


def parse_command(line: str) -> tuple[dict[str, str], str]:
    """Return the properties and the message of a workflow command, as GitHub's runner reads it.

    The runner splits at the first "::" after the command, at commas and at the first "=", and then
    unescapes (actions/runner, ActionCommand.cs).
    """
    assert line.startswith("::error ")
    written, _, message = line.removeprefix("::error ").partition("::")
    properties = {}
    for part in written.split(","):
        name, _, value = part.partition("=")
        for escape, text in (("%3A", ":"), ("%2C", ","), ("%0D", "\r"), ("%0A", "\n")):
            value = value.replace(escape, text)
        properties[name] = value.replace("%25", "%")
    for escape, text in (("%0D", "\r"), ("%0A", "\n"), ("%25", "%")):
        message = message.replace(escape, text)
    return properties, message


def test_an_annotation_points_at_the_source() -> None:
    """A kernel that breaks a check is an error at its file and line, with what was found."""
    (line,) = to_github(check("local_bytes == 0", [SPILLING, compiled()])).splitlines()
    properties, message = parse_command(line)
    assert properties["file"] == "kernels/spill.py"
    assert properties["line"] == "24"
    assert properties["title"] == "spilling breaks local_bytes == 0"
    assert message.startswith("spilling on h100: local_bytes is 152.")


@given(kernel=TEXTS, reason=TEXTS)
@example(kernel="a::error title=b,c=d::100%0A%25", reason="%0D::x\r\n%2C")
def test_an_annotation_is_one_line(kernel: str, reason: str) -> None:
    """Names and reasons cannot end an annotation or begin another command."""
    text = to_github(check("local_bytes == 0", [failed(kernel=kernel, reason=reason)]))
    assert text.endswith("\n")
    assert not re.search(r"[\r\n]", text[:-1])
    properties, message = parse_command(text[:-1])
    assert properties == {"title": f"{visible(kernel)} breaks local_bytes == 0"}
    assert visible(reason) in message


def test_github_gets_at_most_ten_errors() -> None:
    """One error stands for all rows of a kernel, and the tenth says how many more there are."""
    rows = [compiled(f"kernel{n}", local_bytes=8, num_warps=w) for n in range(12) for w in (4, 8)]
    lines = to_github(check("local_bytes == 0", rows)).splitlines()
    assert len(lines) == 10
    assert lines[0].endswith("1 other row of this kernel too.")
    assert lines[-1] == "::error title=occupancy-lab::3 more kernels break checks"


@pytest.mark.parametrize(
    ("option", "variable", "shown"),
    [
        ([], None, False),
        ([], "true", True),
        (["--github"], None, True),
        (["--no-github"], "true", False),
    ],
)
def test_annotations_are_the_default_on_github(
    option: list[str],
    variable: str | None,
    shown: bool,  # noqa: FBT001 - what is expected
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Annotations go to standard error on GitHub, or with --github."""
    if variable is not None:
        monkeypatch.setenv("GITHUB_ACTIONS", variable)
    Path("rows.json").write_text(json.dumps([SPILLING]), encoding="utf-8")
    done = run("check", "local_bytes == 0", "rows.json", *option)
    assert done.returncode == 1
    assert done.stderr.startswith("::error ") is shown


def test_a_path_is_that_in_the_repository(repository: Path) -> None:
    """A file, also of another checkout, is named relative to the repository."""
    inside = repository / "kernels" / "spill.py"
    inside.parent.mkdir()
    inside.touch()
    assert relative(str(inside)) == "kernels/spill.py"
    assert relative("/another/clone/kernels/spill.py") == "kernels/spill.py"
    assert relative("/elsewhere/spilled.py") == "/elsewhere/spilled.py"


def parsed(rows: list[dict[str, Any]]) -> ET.Element:
    """Return the JUnit XML of a check of *rows*."""
    text = to_junit(check("local_bytes == 0", rows))
    return ET.fromstring(text.encode())  # noqa: S314 - it is our own


@pytest.mark.slow
def test_a_kernel_without_a_place_is_looked_for(repository: Path) -> None:
    """A row without a source is placed at the only tracked Triton function of its name."""
    git = shutil.which("git") or "git"
    kernel = (
        "import triton\n\n@triton.autotune([], key=[])\n@triton.jit\n# fast\ndef {}(x):\n    pass\n"
    )
    texts = {
        "one.py": kernel.format("spilling"),
        "lab.py": kernel.format("inner") + "KERNEL: Kernel = Kernel(inner)\n",
        "plain.py": "def plain(x):\n    pass\n",
        "twice.py": kernel.format("twice") * 2,
        "unknown.py": kernel.format("unknown"),
    }
    for name, text in texts.items():
        (repository / name).write_text(text, encoding="utf-8")
    subprocess.run([git, "init", "-q", repository], check=True)
    put("a device", repository / "endless.py")
    known = [*(name for name in texts if name != "unknown.py"), "endless.py"]
    subprocess.run([git, "-C", repository, "add", *known], check=True)
    kernels = ["spilling", "lab", "inner", "plain", "twice", "unknown"]
    rows = [compiled(one, local_bytes=8) for one in kernels]
    found = [place_of(one.row) for one in check("local_bytes == 0", rows).findings]
    assert found == [("one.py", 6), ("lab.py", 6), ("lab.py", 6), None, None, None]


@given(kernel=TEXTS, reason=TEXTS)
@example(kernel="<k a='\x00\x0b\ufffe'>&\ud800", reason="]]>\x1b[31m")
def test_junit_can_be_read_whatever_others_wrote(kernel: str, reason: str) -> None:
    """The XML is well formed for any names, without the characters that XML cannot represent."""
    rows = [failed(kernel=kernel, reason=reason), compiled(kernel, local_bytes=8), compiled(kernel)]
    suites = parsed(rows)
    names = [case.get("classname") for case in suites.iter("testcase")]
    allowed = re.sub(
        "[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "\ufffd", visible(kernel)
    )
    assert names == [allowed] * 3


def test_junit_counts_every_row() -> None:
    """There is a case for each row: a failure if it breaks the check, an error if it failed."""
    suites = parsed([SPILLING, compiled(), failed()])
    (suite,) = suites.iter("testsuite")
    counts = {name: suite.get(name) for name in ("tests", "failures", "errors", "skipped")}
    assert counts == {"tests": "3", "failures": "1", "errors": "1", "skipped": "0"}
    assert suites.get("tests") == "3"
    first, second, third = suite.iter("testcase")
    assert (first.get("file"), first.get("line")) == ("kernels/spill.py", "24")
    assert [one.tag for one in first] == ["failure"]
    assert not list(second)
    assert [one.tag for one in third] == ["error"]


def of_sarif(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the only run of the log of a check of *rows*."""
    log = json.loads(to_sarif(check("local_bytes == 0", rows)))
    assert log["version"] == "2.1.0"
    (run,) = log["runs"]
    return dict(run)


def test_sarif_has_what_the_schema_requires() -> None:
    """The log has the required parts, and each result refers to an existing rule."""
    run = of_sarif([SPILLING, compiled(), failed()])
    driver = run["tool"]["driver"]
    assert driver["name"] == "occupancy-lab"
    assert [rule["id"] for rule in driver["rules"]] == ["local_bytes == 0"]
    assert len(run["results"]) == 2
    for result in run["results"]:
        assert driver["rules"][result["ruleIndex"]]["id"] == result["ruleId"]
        assert result["message"]["text"]
        assert result["level"] in {"none", "note", "warning", "error"}
    place = run["results"][0]["locations"][0]["physicalLocation"]
    assert place["artifactLocation"] == {"uri": "kernels/spill.py", "uriBaseId": "%SRCROOT%"}
    assert place["region"] == {"startLine": 24}
    assert "physicalLocation" not in run["results"][1]["locations"][0]


@given(name=st.text(st.characters(codec="utf-8", exclude_characters="\0/"), min_size=1))
def test_a_uri_is_escaped(name: str) -> None:
    """The URI of a file is valid for any name, and unquotes to it."""
    row = compiled(local_bytes=8, source=f"kernels/{name}.py:3")
    place = of_sarif([row])["results"][0]["locations"][0]["physicalLocation"]
    uri = place["artifactLocation"]["uri"]
    assert re.fullmatch(r"[A-Za-z0-9/._~%-]+", uri)
    assert unquote(uri) == f"kernels/{name}.py"

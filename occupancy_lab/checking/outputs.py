"""The outcome of checks for CI systems: GitHub's annotations, JUnit XML and SARIF."""

from __future__ import annotations

import functools
import os
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

from occupancy_lab import __version__
from occupancy_lab.checking.check import Checked, Finding, Outcome
from occupancy_lab.checking.rows import Row
from occupancy_lab.files import read_bytes
from occupancy_lab.text.document import json_text
from occupancy_lab.text.words import count, visible

MOST_ANNOTATIONS = 10
"""How many errors GitHub shows for one step."""
_NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""The characters that XML 1.0 cannot represent."""
_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_FUNCTION = re.compile(
    r"^[ \t]*@(?:triton\.)?jit\b.*\n(?:[ \t]*[@#].*\n)*[ \t]*def (\w+)", re.MULTILINE
)
"""The definition of a Triton function in a Python file."""
_LAB_KERNEL = re.compile(r"^KERNEL\b.*=", re.MULTILINE)
"""The description of a lab kernel, which is named after its file."""


def _repository() -> Path:
    """Return $GITHUB_WORKSPACE, or the nearest folder, from the current one up, with a .git."""
    if root := os.environ.get("GITHUB_WORKSPACE"):
        return Path(os.path.realpath(root))
    here = Path(os.path.realpath(Path.cwd()))
    return next((one for one in (here, *here.parents) if (one / ".git").exists()), here)


def place_of(row: Row) -> tuple[str, int] | None:
    """Return the file, as `relative` names it, and the line of a row's kernel; None if not known.

    If the row does not have them, a Triton function with the kernel's name is looked for in the
    repository; there must be only one.
    """
    places = {row.place} if row.place else _definitions(_repository()).get(row.kernel, set())
    if len(places) != 1:
        return None
    ((file, line),) = places
    return relative(file), line


@functools.cache
def _definitions(root: Path) -> dict[str, set[tuple[str, int]]]:
    command = ["git", "-C", str(root), "ls-files", "-z", "*.py"]
    found: dict[str, set[tuple[str, int]]] = {}
    try:
        done = subprocess.run(command, capture_output=True, check=True)  # noqa: S603 - git
        names = os.fsdecode(done.stdout).split("\0")
    except (OSError, subprocess.CalledProcessError):
        return found
    for name in filter(None, names):
        try:
            text = read_bytes(root / name).decode()
        except (OSError, UnicodeDecodeError):
            continue
        functions = [
            (one[1], text.count("\n", 0, one.end()) + 1) for one in _FUNCTION.finditer(text)
        ]
        if functions and _LAB_KERNEL.search(text):
            functions.append((Path(name).stem, functions[0][1]))
        for function, line in functions:
            found.setdefault(function, set()).add((str(root / name), line))
    return found


def relative(file: str) -> str:
    """Return the path of *file* in the repository, with slashes, as CI systems name it.

    For a file elsewhere, as in a cache from another machine, it is the path in the repository with
    the same ending. Without one, the path stays as it is.
    """
    path, top = Path(os.path.realpath(file)), _repository()
    if path.is_relative_to(top):
        return path.relative_to(top).as_posix()
    ends = (Path(*path.parts[first:]) for first in range(1, len(path.parts)))
    return next((end for end in ends if (top / end).is_file()), Path(file)).as_posix()


def to_github(checked: Checked) -> str:
    """Return an annotation for each kernel and broken check, at most as many as GitHub shows."""
    groups: dict[tuple[object, ...], list[Finding]] = {}
    for one in checked.findings:
        groups.setdefault((one.check.name, one.row.kernel, place_of(one.row)), []).append(one)
    lines = [_annotation(group) for group in list(groups.values())[:MOST_ANNOTATIONS]]
    if len(groups) > MOST_ANNOTATIONS:
        more = len(groups) - MOST_ANNOTATIONS + 1
        lines[-1] = f"::error title=occupancy-lab::{more} more kernels break checks"
    return "".join(f"{line}\n" for line in lines)


def _annotation(group: list[Finding]) -> str:
    first = group[0]
    place = place_of(first.row)
    where = {} if place is None else {"file": place[0], "line": str(place[1])}
    properties = {**where, "title": f"{first.row.kernel} breaks {first.check.name}"}
    escaped = {
        name: _data(value).replace(":", "%3A").replace(",", "%2C")
        for name, value in properties.items()
    }
    written = ",".join(f"{name}={value}" for name, value in escaped.items())
    message = message_of(first)
    if len(group) > 1:
        message += f" {count(len(group) - 1, 'other row')} of this kernel too."
    return f"::error {written}::{_data(message)}"


def message_of(one: Finding) -> str:
    """Return what was found and what would fix it, as plain sentences."""
    return f"{one.label}: {one.why}. {one.advice}".strip()


def _data(text: str) -> str:
    return visible(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def to_junit(checked: Checked) -> str:
    """Return the checks as JUnit XML: a suite for each check, a test case for each row."""
    suites = ET.Element("testsuites", {"name": "occupancy-lab", **_counts(checked.outcomes)})
    for outcome in checked.outcomes:
        named = {"name": _xml(outcome.check.name), "skipped": "0"}
        suite = ET.SubElement(suites, "testsuite", {**named, **_counts([outcome])})
        broken = {id(one.row): one for one in outcome.findings}
        for row, called in zip(outcome.rows, outcome.labels, strict=True):
            case = ET.SubElement(suite, "testcase", name=_xml(called), classname=_xml(row.kernel))
            if place := place_of(row):
                case.set("file", _xml(place[0]))
                case.set("line", str(place[1]))
            if one := broken.get(id(row)):
                kind = "error" if one.kind == "failed" else "failure"
                problem = ET.SubElement(case, kind, message=_xml(one.why), type=one.kind)
                problem.text = _xml(f"{outcome.check.condition.text}\n{message_of(one)}")
    ET.indent(suites)
    return ET.tostring(suites, encoding="unicode", xml_declaration=True) + "\n"


def _counts(outcomes: Sequence[Outcome]) -> dict[str, str]:
    kinds = [one.kind for outcome in outcomes for one in outcome.findings]
    errors = kinds.count("failed")
    return {
        "tests": str(sum(len(outcome.rows) for outcome in outcomes)),
        "failures": str(len(kinds) - errors),
        "errors": str(errors),
    }


def _xml(text: str) -> str:
    return _NO_XML.sub("\ufffd", visible(text))


def to_sarif(checked: Checked) -> str:
    """Return the findings as SARIF 2.1.0: a rule for each check, a result for each row."""
    rules = [
        {
            "id": outcome.check.name,
            "shortDescription": {"text": outcome.check.condition.text},
            "defaultConfiguration": {"level": "error"},
        }
        for outcome in checked.outcomes
    ]
    results = [
        _result(one, number)
        for number, outcome in enumerate(checked.outcomes)
        for one in outcome.findings
    ]
    driver = {"name": "occupancy-lab", "semanticVersion": __version__, "rules": rules}
    log = {
        "$schema": _SCHEMA,
        "version": "2.1.0",
        "runs": [
            {"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}
        ],
    }
    return json_text(log) + "\n"


def _result(one: Finding, rule: int) -> dict[str, Any]:
    return {
        "ruleId": one.check.name,
        "ruleIndex": rule,
        "level": "error",
        "message": {"text": message_of(one)},
        "locations": [_location(one)],
        # Identifies the result when lines move.
        "partialFingerprints": {"row/v1": one.label},
        "properties": {**one.found, "status": one.row.status, "row": one.label},
    }


def _location(one: Finding) -> dict[str, Any]:
    from urllib.parse import quote

    location: dict[str, Any] = {"logicalLocations": [{"name": one.row.kernel, "kind": "function"}]}
    if place := place_of(one.row):
        path, line = place
        location["physicalLocation"] = {
            # Relative within the repository, absolute elsewhere.
            "artifactLocation": {"uri": Path(path).as_uri()}
            if Path(path).is_absolute()
            else {"uri": quote(path), "uriBaseId": "%SRCROOT%"},
            "region": {"startLine": max(line, 1)},
        }
    return location

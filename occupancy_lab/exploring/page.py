"""The page of `explore`: one HTML file with its style, its script and its data.

The data are formulas, architectures, GPUs, words, and compiled kernels.
"""

from __future__ import annotations

import base64
import dataclasses
import functools
import hashlib
import itertools
import json
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeAlias

from occupancy_lab import __version__
from occupancy_lab.errors import InputError, refuse
from occupancy_lab.explaining.limits import LACKING, SENTENCES, VERDICTS, term_reasons
from occupancy_lab.files import check_outputs, export
from occupancy_lab.gpus import Architecture, CudaArchitecture, find_gpu
from occupancy_lab.gpus.gpu import architectures, bare_gpus, devices
from occupancy_lab.occupancy.exact import exact_rules, option_for, stepped_amounts
from occupancy_lab.occupancy.rule import UNLIMITED, Rule
from occupancy_lab.occupancy.tutorial import Rocm, Term, divides_by_zero, terms_of, tutorial_rules
from occupancy_lab.table.columns import COLUMNS
from occupancy_lab.table.rows import Rows, read_file, to_cell
from occupancy_lab.text.words import LIMITS, resource_word
from occupancy_lab.values import INT32_MAX, Resources

_WORDS = ("vendor", "multiprocessor_word", "warp_word", "register_word", "shared_word")
_WORKED_OUT = ("max_warps", "registers", "max_warps_per_program")
LONGEST_LABEL = 200
"""The most characters of a cell that the page shows."""


def page_data(rows: Path | str | None = None) -> dict[str, Any]:
    """Return the data of the page; *rows* is a file that a sweep or a scan exported.

    Raise InputError if that file cannot be read, or if no row has the columns that an occupancy
    needs.
    """
    families: list[dict[str, Any]] = []
    known: dict[str, int] = {}
    limits: dict[str, dict[str, Any]] = {}
    for name, architecture in architectures().items():
        formula = formulas(architecture)
        family = known.setdefault(json.dumps(formula), len(families))
        if family == len(families):
            families.append(formula)
        limits[name] = {"family": family, **_architecture(architecture)}
    own, pictures = None, None
    if rows is not None:
        from occupancy_lab.reporting.roofline import rooflines

        own = read_rows(Path(rows))
        pictures = rooflines(own)
    compiled = files("occupancy_lab.exploring").joinpath("kernels.json")
    return {
        "version": __version__,
        "families": families,
        "architectures": limits,
        "gpus": [
            {
                "key": gpu.key,
                "title": gpu.title,
                "architecture": gpu.architecture.target_name,
                "multiprocessors": gpu.multiprocessors,
            }
            for gpu in (*devices().values(), *bare_gpus().values())
        ],
        "sentences": dict(SENTENCES),
        "verdicts": dict(VERDICTS),
        "lacking": dict(LACKING),
        "kernels": json.loads(compiled.read_text(encoding="utf-8")),
        "own": own,
        "rooflines": pictures,
    }


def _architecture(architecture: Architecture) -> dict[str, Any]:
    """Return the architecture's words, and its numbers by their names in formulas and steps."""
    names = [field.name for field in dataclasses.fields(architecture)]
    numbers = {name: getattr(architecture, name) for name in (*names, *_WORKED_OUT)}
    words = {name: getattr(architecture, name) for name in _WORDS}
    return {
        "numbers": {name: value for name, value in numbers.items() if value is not None},
        "words": words,
        "resources": {name: resource_word(architecture.vendor, name) for name in LIMITS},
        "units": {
            name: limit.unit.format(architecture) for name, limit in LIMITS.items() if limit.unit
        },
        "terms": {term.name: _reason(term.name, architecture) for term in terms_of(architecture)},
    }


def _reason(term: str, architecture: Architecture) -> str:
    """Return why *term* costs programs on *architecture*; "" if it does not apply there."""
    try:
        return term_reasons([term], architecture)
    except AttributeError:
        return ""


_SHOWN = ("kernel", "gpu", "rows", "cols", "dtype", "BLOCK_SIZE", "num_stages", "constexprs")
"""Columns that the page shows if the file has them."""
_NEEDED = ("n_regs", "shared", "num_warps")
_NAMES = ("kernel", "function", "name")


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Return the rows of the CSV or JSON file *path* that have registers, shared memory and warps.

    A row names its GPU in the column gpu or target. Raise InputError if the file cannot be read,
    has no such row, or has an invalid cell.
    """
    read = read_file(path)
    found = [one for place, row in enumerate(read.rows) if (one := _row(read, place, row))]
    if not found:
        refuse(
            f"{read.name} has no row with gpu or target, n_regs, shared and num_warps;"
            " occupancy-lab sweep --export-csv writes such rows"
        )
    return found


def _row(read: Rows, place: int, row: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the parts of a row that the page uses; None if the row has no resources."""
    from occupancy_lab.reporting.roofline import LAUNCH

    name = row.get("gpu") or row.get("target")
    was_read = (row.get("status") or "ok") in {"ok", "does not fit"}
    if not name or not was_read or any(row.get(one) is None for one in _NEEDED):
        return None
    try:
        gpu = find_gpu(str(name))
    except InputError as error:
        read.refuse(place, "gpu" if row.get("gpu") else "target", str(error))
    numbers = {one: row[one] for one in (*USAGE, *OPTIONAL) if row.get(one) is not None}
    for column, value in numbers.items():
        least = int(column == "num_warps")
        if not isinstance(value, int) or not least <= value <= INT32_MAX:
            read.refuse(place, column, f"a whole number from {least} to {INT32_MAX}")
    for column in LAUNCH:
        if isinstance(row.get(column), list | dict):
            read.refuse(place, column, COLUMNS[column].words)
    launch = {one: row[one] for one in LAUNCH if row.get(one) is not None}
    label = next((str(row[one]) for one in _NAMES if row.get(one)), "kernel")
    # In a trace's export each constexpr has its own column.
    names = [one for one in row if one not in {*COLUMNS, *_NAMES} and row[one] is not None]
    told = {"constexprs": {one: row[one] for one in names}, **row}
    shown = {one: str(to_cell(told[one]))[:LONGEST_LABEL] for one in _SHOWN if told.get(one)}
    return {**shown, "gpu": gpu.key, "kernel": label[:LONGEST_LABEL], **numbers, **launch}


_IMPORT = re.compile(r'^import (\{[^}]*\}) from "\./(\w+)\.js";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async )?(?:function\*?|class|const) (\w+))", re.MULTILINE)
_SLOT = re.compile(r"\{\{(\w+)\}\}")


def explore(output: Path | str = "explore.html", *, rows: Path | str | None = None) -> Path:
    """Write the page to *output* and return its path.

    The page is one HTML file that needs no server and no network. It shows an SM or CU of every
    GPU in the table by the lab's formulas, with sliders. *rows* is a CSV or JSON file that a sweep
    or a scan exported; the page shows its rows too.

    Raise InputError if a file cannot be read or written.
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
        # The text of a script must contain neither the end of its element nor a comment.
        "data": data.replace("<", "\\u003c"),
        "script": script,
    }
    return _SLOT.sub(lambda slot: slots[slot[1]], _source("index.html"))


def _source(name: str) -> str:
    return files("occupancy_lab.exploring").joinpath("page", name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def bundle(main: str) -> str:
    """Return the module *main* and all its imports as one script.

    Each module becomes a block that puts its exports into an object.
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


Node: TypeAlias = "int | str | tuple[str | int, ...]"

USAGE = ("n_regs", "num_warps", "shared", "static_shared")
"""The fields of Resources that are always known."""
OPTIONAL = ("barriers", "tensor_memory", "sgprs", "allocated_vgprs")
"""The fields of Resources that rules use and that may be None."""


class Nodes:
    """The distinct nodes of an architecture's formulas."""

    def __init__(self) -> None:
        self.list: list[Node] = []
        self._places: dict[Node, int] = {}

    def place(self, node: Node) -> int:
        """Return the index of *node*; add the node if it is new."""
        if node not in self._places:
            self._places[node] = len(self.list)
            self.list.append(node)
        return self._places[node]

    def of(self, number: Any) -> int:
        """Return the index of a symbol or a number."""
        return number.place if isinstance(number, Symbol) else self.place(int(number))


def _node(sign: str, known: Callable[..., Any], *, reflected: bool = False) -> Any:
    def method(self: Symbol, other: Any) -> Symbol:
        operands = (other, self) if reflected else (self, other)
        return self.made(sign, known, *operands)

    return method


_reflected = functools.partial(_node, reflected=True)


class Symbol:
    """A number that is not known yet: operations on it become nodes.

    A symbol that depends only on the architecture has its *value*, so that a rule may branch on it.
    """

    __hash__ = None  # type: ignore[assignment] # == returns a symbol

    def __init__(self, nodes: Nodes, node: Node, value: int | None = None) -> None:
        self.nodes = nodes
        self.place = nodes.place(node)
        self.value = value

    def made(self, sign: str, known: Callable[..., Any], *operands: Any) -> Symbol:
        """Return the symbol of an operation on *operands*, symbols or numbers."""
        values = [one.value if isinstance(one, Symbol) else one for one in operands]
        value = None if None in values else known(*values)
        return Symbol(self.nodes, (sign, *map(self.nodes.of, operands)), value)

    __add__, __radd__ = _node("+", operator.add), _reflected("+", operator.add)
    __sub__, __rsub__ = _node("-", operator.sub), _reflected("-", operator.sub)
    __mul__, __rmul__ = _node("*", operator.mul), _reflected("*", operator.mul)
    __floordiv__ = _node("//", operator.floordiv)
    __rfloordiv__ = _reflected("//", operator.floordiv)
    __lt__, __le__ = _node("<", operator.lt), _node("<=", operator.le)
    __gt__, __ge__ = _reflected("<", operator.lt), _reflected("<=", operator.le)
    __eq__ = _node("==", operator.eq)
    __or__ = _node("|", operator.or_)

    def __neg__(self) -> Symbol:
        return self.made("-", operator.sub, 0, self)

    def __bool__(self) -> bool:
        if self.value is None:
            msg = f"{self.nodes.list[self.place]} is not known; use `where`"
            raise TypeError(msg)
        return bool(self.value)

    def __format__(self, _form: str) -> str:
        return f"{{{self.place}}}"


def _where(condition: Any, yes: Any, no: Any) -> Any:
    symbol = next((one for one in (condition, yes, no) if isinstance(one, Symbol)), None)
    if symbol is None:
        return yes if condition else no
    return symbol.made("?", lambda what, first, other: first if what else other, condition, yes, no)


class _Given(Symbol):
    """The amount of an optional resource that a kernel uses; rules may test that it is not zero."""

    def __bool__(self) -> bool:
        return True


def _symbolic_usage(nodes: Nodes, given: Iterable[str]) -> Resources:
    fields: dict[str, Any] = {name: Symbol(nodes, f"u.{name}") for name in USAGE}
    fields |= {name: _Given(nodes, f"u.{name}") for name in given}
    return Resources(**fields)


def optional_of(architecture: Architecture) -> tuple[str, ...]:
    """Return the optional fields of a usage that this architecture's rules use."""
    if isinstance(architecture, CudaArchitecture):
        names = {"barriers": architecture.max_barriers, "tensor_memory": architecture.tensor_memory}
    else:
        names = {"sgprs": architecture.sgprs_per_simd, "allocated_vgprs": architecture.max_vgprs}
    return tuple(name for name, has in names.items() if has is not None)


def formulas(architecture: Architecture) -> dict[str, Any]:
    """Return every formula of *architecture* as data: limits, cliffs, and the tutorial's.

    Architectures that differ only in numbers have the same formulas.
    """
    nodes = Nodes()
    changes: dict[str, Any] = {
        field.name: Symbol(nodes, f"a.{field.name}", getattr(architecture, field.name))
        for field in dataclasses.fields(architecture)
        if isinstance(getattr(architecture, field.name), int)
    }
    symbolic = dataclasses.replace(architecture, **changes)
    ways = {
        "+".join(given): _symbolic_usage(nodes, given)
        for count in range(len(optional_of(architecture)) + 1)
        for given in itertools.combinations(optional_of(architecture), count)
    }
    (plain, *_) = ways.values()
    return {
        "optional": optional_of(architecture),
        "rules": _rules(exact_rules(architecture), ways, symbolic, nodes),
        "amounts": {
            way: {
                name: [nodes.of(one) for one in pair]
                for name, pair in stepped_amounts(usage, symbolic, _where).items()
            }
            for way, usage in ways.items()
        },
        "option": option_for(symbolic, "registers", Symbol(nodes, "u.n_regs"), _where),  # type: ignore[arg-type]
        "tutorial": _rules(
            tutorial_rules(architecture, Rocm.CURRENT), {"": plain}, symbolic, nodes
        ),
        "tutorial_fails": divides_by_zero(plain).place,
        "terms": [_term(term, symbolic, ways, nodes) for term in terms_of(architecture)],
        "nodes": nodes.list,
        "unlimited": UNLIMITED,
    }


def _rules(
    rules: Iterable[Rule], ways: Mapping[str, Resources], symbolic: Any, nodes: Nodes
) -> list[dict[str, Any]]:
    return [
        {
            "resource": rule.resource,
            "steps": rule.steps,
            "work": {way: _work(rule, usage, symbolic, nodes) for way, usage in ways.items()},
        }
        for rule in rules
    ]


def _work(rule: Rule, usage: Resources, symbolic: Any, nodes: Nodes) -> dict[str, Any] | None:
    """Return the node of each number of a rule, or its text; None if the rule does not apply."""
    work = rule.work(usage, symbolic, _where)
    if work is None:
        return None
    return {
        name: value if isinstance(value, str) else nodes.of(value) for name, value in work.items()
    }


def _term(term: Term, symbolic: Any, ways: Mapping[str, Resources], nodes: Nodes) -> dict[str, Any]:
    """Return the fields of architecture and usage as a formula without *term* sees them."""
    usage = [*ways.values()][-1]
    blind, blind_usage = term.hide(symbolic, usage, Rocm.CURRENT)

    def changes(before: Any, after: Any) -> dict[str, int | None]:
        names = [field.name for field in dataclasses.fields(before)]
        return {
            name: None if value is None else nodes.of(value)
            for name in names
            if (value := getattr(after, name)) is not getattr(before, name)
        }

    return {
        "name": term.name,
        "architecture": changes(symbolic, blind),
        "usage": changes(usage, blind_usage),
    }

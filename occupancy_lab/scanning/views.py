"""The rows of a scan, chosen from, sorted and written out, without pandas."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from occupancy_lab.errors import InputError, quoted, refuse
from occupancy_lab.expressions import nearest, parse
from occupancy_lab.files import check_outputs, csv_text, export
from occupancy_lab.scanning.scan import COLUMNS, Scan, kinds_of, scan, values_of
from occupancy_lab.text.document import Table, literal
from occupancy_lab.text.printing import json_text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from occupancy_lab.inputs import AskedGpus
    from occupancy_lab.scanning.scan import ScannedKernel


def choose(found: Scan, *, where: str | None = None, sort: str | None = None) -> Scan:
    """Return the scan with the kernels for which *where* holds, by the column *sort*.

    A kernel is left out where it is not known whether the condition holds. A minus before the
    column's name sorts descending; what is not known comes last.

    Raises InputError where the condition or the column makes no sense.
    """
    kernels = list(found.kernels)
    kinds = kinds_of(kernels)
    if where is not None:
        try:
            condition = parse(where, "occupancy < 0.5 and local_accesses > 0")
            condition.check(kinds)
        except InputError as error:
            msg = f"--where {error}"
            raise InputError(msg) from error
        names = [*kinds]
        kernels = [one for one in kernels if condition.evaluate(values_of(one, names)) is True]
    if sort is not None:
        name = sort.removeprefix("-")
        if name not in kinds:
            refuse(f"--sort {quoted(sort)} names no column; {nearest(name, kinds)}")
        kernels = _sorted(kernels, name, descending=sort.startswith("-"))
    return found.with_kernels(kernels)


def _sorted(
    kernels: Sequence[ScannedKernel], name: str, *, descending: bool
) -> list[ScannedKernel]:
    valued = [(values_of(one).get(name), one) for one in kernels]
    known: list[tuple[Any, ScannedKernel]] = [pair for pair in valued if pair[0] is not None]
    known.sort(key=lambda pair: pair[0], reverse=descending)
    return [one for _, one in known] + [one for value, one in valued if value is None]


def to_csv(found: Scan) -> str:
    """Return the rows as CSV, safe in a spreadsheet; what is not known is an empty cell."""
    rows = [values_of(one) for one in found.kernels]
    return csv_text(COLUMNS, [[row[name] for name in COLUMNS] for row in rows])


def to_json(found: Scan) -> str:
    """Return the rows as a JSON list; what is not known is null."""
    return json_text(found.rows()) + "\n"


def to_markdown(found: Scan) -> str:
    """Return the rows as a table in markdown, with every column."""
    rows = [values_of(one) for one in found.kernels]
    cells = (
        tuple("-" if row[n] is None else literal(str(row[n])) for n in COLUMNS) for row in rows
    )
    return Table(COLUMNS, tuple(cells), prose=True).to_markdown() + "\n"


def scan_views(  # noqa: PLR0913 - one argument per option of the command line
    directories: Sequence[str],
    gpu: AskedGpus | None,
    *,
    where: str | None = None,
    sort: str | None = None,
    top: int | None = None,
    form: str | None = None,
    export_csv: str | None = None,
    export_json: str | None = None,
    export_markdown: str | None = None,
) -> tuple[str, int]:
    """Return what `occupancy-lab scan` prints, and its exit status.

    The status is 1 where not one kernel can be read. Raises InputError for what cannot be asked,
    read or written.
    """
    outputs: dict[str, tuple[str | None, Callable[[Scan], str]]] = {
        "--export-csv": (export_csv, to_csv),
        "--export-json": (export_json, to_json),
        "--export-markdown": (export_markdown, to_markdown),
    }
    check_outputs({option: path for option, (path, _) in outputs.items()})
    whole = scan(*directories, gpu=gpu)
    found = choose(whole, where=where, sort=sort)
    cut = found if top is None else found.with_kernels(found.kernels[:top])
    for path, form_of in outputs.values():
        if path is not None:
            export(Path(path), form_of(cut))
    status = int(bool(whole.kernels) and all(one.n_regs is None for one in whole.kernels))
    if form is not None:
        return {"csv": to_csv, "json": to_json}[form](cut), status
    from occupancy_lab.scanning.page import TOP, write_scan

    asked = not (where is None and sort is None and top is None)
    return write_scan(found, top=top or TOP, every=asked).to_markdown(), status

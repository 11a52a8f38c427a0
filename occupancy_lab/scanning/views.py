"""The rows of a scan, chosen from and written out, without pandas."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from occupancy_lab.errors import refuse
from occupancy_lab.scanning.scan import COLUMNS, Scan, kinds_of, scan, values_of
from occupancy_lab.table.view import FORMS, View

if TYPE_CHECKING:
    from collections.abc import Sequence

    from occupancy_lab.inputs import AskedGpus
    from occupancy_lab.table.view import Exports


def choose(found: Scan, view: View) -> Scan:
    """Return the scan with the kernels that *view* shows; InputError where it makes no sense."""
    kinds = kinds_of(found.kernels)
    rows = [values_of(one, [*kinds]) for one in found.kernels]
    return found.with_kernels([found.kernels[place] for place in view.places(rows, kinds)])


def scan_views(
    view: View,
    exports: Exports,
    directories: Sequence[str],
    gpu: AskedGpus | None,
    form: str | None = None,
) -> tuple[str, int]:
    """Return what `occupancy-lab scan` prints, and its exit status.

    The status is 1 where not one kernel can be read. Raises InputError for what cannot be asked,
    read or written.
    """
    exports.check()
    whole = scan(*directories, gpu=gpu)
    found = choose(whole, dataclasses.replace(view, top=None))
    rows = found.rows()[: view.top]
    if complaints := [*exports.write(COLUMNS, rows)]:
        refuse("; ".join(complaints))
    status = int(bool(whole.kernels) and all(one.n_regs is None for one in whole.kernels))
    if form is not None:
        return FORMS[form](COLUMNS, rows), status
    from occupancy_lab.scanning.page import TOP, write_scan

    asked = view != View()
    return write_scan(found, top=view.top or TOP, every=asked).to_markdown(), status

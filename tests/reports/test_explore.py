"""The kernels that the page of explore knows are remade."""

import json

import explore


def test_kernels_are_what_the_recorded_rows_make() -> None:
    """Predicted and recorded times are those of the compiled rows, without a calibration."""
    assert explore.kernels() == json.loads(explore.KNOWN.read_text(encoding="utf-8"))

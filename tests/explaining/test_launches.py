"""What sets launches of a kernel apart is what Triton distinguishes of their arguments."""

from __future__ import annotations

from occupancy_lab.arguments import Pointer
from occupancy_lab.explaining.overview import apart, argument_classes
from occupancy_lab.launch import BoundLaunch, Launch


def classes(**arguments: object) -> dict[str, str]:
    """Return those of a launch that passes *arguments*, of which BLOCK is a constexpr."""
    return argument_classes(BoundLaunch("k", Launch((), {}), arguments, ("BLOCK",), {}))  # type: ignore[arg-type]


def test_numbers_are_told_apart_by_whether_16_divides_them() -> None:
    """A tensor has its dtype and whether it is aligned; a bool, a float and a constexpr nothing."""
    x, y = Pointer("float16", 64, aligned=True), Pointer("float32", 64, aligned=False)
    assert classes(x=x, y=y, n=1000, m=1024, one=1, flag=False, eps=1e-5, BLOCK=64) == {
        "x": "float16",
        "y": "float32 unaligned",
        "n": "any",
        "m": "multiple of 16",
        "one": "1",
    }


def test_what_differs_is_what_any_other_has_otherwise() -> None:
    """What all have alike is not said."""
    one, other = {"x": "float16", "n": "any"}, {"x": "float16", "n": "1"}
    assert apart(one, [one, other]) == "n any"
    assert apart(one, [one]) == ""

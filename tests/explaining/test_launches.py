"""What sets launches of a kernel apart is what Triton distinguishes of their arguments."""

from occupancy_lab.arguments import Pointer
from occupancy_lab.explaining.overview import apart, argument_classes, together
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
        "n": "no multiple of 16",
        "m": "multiple of 16",
        "one": "1",
    }


def test_what_differs_is_what_any_other_has_otherwise() -> None:
    """What all have alike is not said."""
    one, other = {"x": "float16", "n": "any"}, {"x": "float16", "n": "1"}
    assert apart(one, [one, other]) == "n any"
    assert apart(one, [one]) == ""


def test_launches_of_one_kernel_have_what_is_so_of_each() -> None:
    """A kernel that numbers with and without the factor 16 share is that of all but 1."""
    several = [classes(seed=seed, n=1024) for seed in (0, 2)]
    assert together(several) == {"seed": "not 1", "n": "multiple of 16"}
    assert together([*several, classes(seed=1, n=1024)])["seed"].startswith("1 or ")
    assert apart(together(several), [classes(seed=1, n=1024)]) == "seed not 1"

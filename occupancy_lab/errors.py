"""Every error that this package raises on purpose.

    OccupancyLabError              anything a user can act on; the command line prints it, exit 2
    ├── InputError                 an invalid request: a bad number, name or file
    │   └── GridError              a grid that no launch can have
    │       └── EmptyGridError     a grid without programs
    ├── DoesNotFitError            one program needs more than the GPU gives one program
    ├── CompileError               Triton could not compile the kernel for this target
    │   ├── TargetError            the installed Triton has no compiler for this target
    │   └── CompileTimeoutError    a compile takes longer than the time limit
    ├── BinaryError                a cubin, an hsaco or a kernel's text that cannot be read
    ├── TtirError                  a text that is no TTIR, or larger than any compiler's
    └── DriverError                this machine's GPU or its driver failed

Each message is one sentence that says what was found, what was expected and what would work. The
command line exits with 1 for DoesNotFitError and CompileError: the request is valid, but no launch
runs.
"""

import contextlib
import sys
from collections.abc import Iterator, Sequence
from typing import NoReturn

LONGEST_QUOTE = 40
"""How many characters of an input an error quotes."""
MOST_NAMED = 5
"""How many names an error lists."""


def shortened(text: str) -> str:
    """Return *text*, cut to the length that an error quotes."""
    return text if len(text) <= LONGEST_QUOTE else f"{text[:LONGEST_QUOTE]}…"


def quoted(value: object) -> str:
    """Return *value* in quotes, shortened, for an error."""
    return repr(shortened(str(value)))


def some_of(names: Sequence[str], most: int) -> list[str]:
    """Return the first *most* of *names*, and how many more there are: "3 more"."""
    more = len(names) - most
    return [*names[:most], *([f"{more} more"] if more > 0 else [])]


def few_of(names: Sequence[str]) -> str:
    """Return the first of *names* for an error, and how many follow; "none" if there are none."""
    return ", ".join(some_of([*map(shortened, names)], MOST_NAMED)) or "none"


class OccupancyLabError(Exception):
    """Anything a user can act on."""


class InputError(OccupancyLabError):
    """The request is invalid."""


class GridError(InputError):
    """A launch cannot have this grid."""


class EmptyGridError(GridError):
    """A grid has no programs: Triton launches nothing, and there is nothing to explain."""


def refuse(sentence: str, kind: type[OccupancyLabError] = InputError) -> NoReturn:
    """Raise InputError, or another *kind* of error, from the error being handled, if any."""
    raise kind(sentence) from sys.exception()


@contextlib.contextmanager
def after(words: str, kind: type[InputError] = InputError) -> Iterator[None]:
    """Put *words* before the message of an error of *kind* that the block raises."""
    try:
        yield
    except kind as error:
        msg = f"{words}{error}"
        raise type(error)(msg) from error


class DoesNotFitError(OccupancyLabError):
    """One program needs more than the GPU gives one program."""

    def __init__(self, message: str, *, needed: int, available: int) -> None:
        super().__init__(message)
        self.needed = needed
        self.available = available


class CompileError(OccupancyLabError):
    """Triton could not compile the kernel for this target."""


class TargetError(CompileError):
    """The installed Triton has no compiler for this target."""


class CompileTimeoutError(CompileError):
    """A compile takes longer than the time limit."""

    @classmethod
    def of(cls, called: str, seconds: float | None, target: str) -> "CompileTimeoutError":
        """Return the error of a kernel *called* so that had *seconds* to compile for *target*."""
        return cls(
            f"{called} takes longer than {seconds:g} s to compile for {target};"
            " --compile-timeout gives it more"
        )


class BinaryError(OccupancyLabError):
    """A cubin, an hsaco or a kernel's text that cannot be read."""


def unreadable(sentence: str) -> NoReturn:
    """Raise BinaryError."""
    refuse(sentence, BinaryError)


class TtirError(OccupancyLabError):
    """A text that is no TTIR, or larger than any compiler's."""


class DriverError(OccupancyLabError):
    """This machine's GPU or its driver failed."""

"""How a command line writes a launch's arguments, and which arguments a kernel's parameters need.

An argument, an entry of `--signature`, is

- `*fp16`: a pointer to an address that is a multiple of 16, as torch's are; `*fp16:16` is the same,
  and `*fp16:1` is any address. `*fp16[4096x2048]` also gives the tensor's size in elements; a
  tensor without a size is below 2 GiB, so that AMD's GPUs reach all of it with 32-bit offsets.
- `i32`, `i64`, `u64`: an integer that is neither 1 nor a multiple of 16; `i32:16` is a multiple
  of 16, and `i32:1` is 1. `fp32` is a float and `u1` a bool: Triton's types of Python's numbers.
- `2048`, `1e-5`, `True`, `None`: a value, with the type that a launch gives it.
- `tensordesc<fp16[128,64]>`: a tensor descriptor with blocks of that size.
- `(i32, *fp16)`: a tuple.

`triton.tools.compile` differs in two points: there `*fp16` without a mark is any address, like
`*fp16:1` here, and a value turns an argument that is not a constexpr into one.
"""

from __future__ import annotations

import ast
import contextlib
import difflib
import functools
import inspect
import math
import re
import shlex
import warnings
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from occupancy_lab.arguments import (
    ALIGNMENT,
    TRITON_DTYPES,
    Descriptor,
    Dtype,
    DtypeName,
    Pointer,
    Tensor,
    dtype_name,
    plain,
)
from occupancy_lab.errors import InputError, few_of, quoted, refuse, shortened
from occupancy_lab.expressions import Kind, parse
from occupancy_lab.kernel import is_triton_function, triton_class
from occupancy_lab.options import KNOBS
from occupancy_lab.values import INT32_MAX, INT64_MAX

MOST_CHARACTERS = 10_000
"""The longest option: hundreds of parameters, and less than Python's parser takes."""
DEEPEST_TUPLE = 2
"""Tuples in tuples, the deepest nesting that can be sent to a compiling process."""
PASSED = ("i32", "i64", "u64", "fp32", "u1")
"""Triton's types for Python's numbers."""
MARKS = {None, "1", str(ALIGNMENT)}
_POINTER = re.compile(r"\*\s*(\w+)\s*(?:\[([^\[\]]*)\])?\s*(?::\s*(\d+))?")
_DESCRIPTOR = re.compile(r"tensordesc<\s*(\w+)\s*\[([^\[\]]*)\]\s*>")
_NUMBER = re.compile(r"([a-z]\w*)\s*(?::\s*(\d+))?")
_WORD = re.compile(r"[A-Za-z_.][\w.+-]*")
_SIZES = re.compile(r"[0-9]{1,20}(?:\s*[x,]\s*[0-9]{1,20})*")


class Typical:
    """Stands for a number of which only the type is known.

    `arguments.plain` turns it into a number that Triton specializes like any number of its type.
    Code that calculates with the arguments of a launch, such as heuristics, gets an error that it
    has no value.
    """

    def __init__(self, name: str, text: str, number: float) -> None:
        """Stand for argument *name*, whose signature is *text*, as *number*."""
        self._name = name
        self._text = text
        self._number = number

    def item(self) -> float:
        """Return a number that Triton specializes in the same way, like numpy's `item`."""
        return self._number

    def unknown(self, *_: object) -> Any:
        """Raise InputError, because the argument has no value."""
        example = {bool: "True", float: "0.5"}.get(type(self._number), "2048")
        refuse(
            f"the value of {shortened(self._name)} is asked for, and the signature has its type"
            f" alone, {quoted(self._text)}; give one, such as {shortened(self._name)}={example}"
        )

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __pow__ = __rpow__ = unknown
    __truediv__ = __rtruediv__ = __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = unknown
    __and__ = __rand__ = __or__ = __ror__ = __lshift__ = __rlshift__ = __rshift__ = unknown
    __lt__ = __le__ = __gt__ = __ge__ = __neg__ = __abs__ = __int__ = __float__ = unknown
    __eq__ = __ne__ = __bool__ = unknown
    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return self._text


def is_typical(value: Any) -> bool:
    """Return whether *value*, or an item of it, is a type without a value."""
    return isinstance(value, Typical) or (isinstance(value, tuple) and any(map(is_typical, value)))


def split(text: str, of: str) -> list[str]:
    """Return the parts of *text* between the commas outside brackets and quotes.

    Raises InputError, naming *of*, if a bracket or quote is not closed, or if the text is too long.
    """
    if len(text) > MOST_CHARACTERS:
        refuse(f"{shortened(of)} has {len(text)} characters; give at most {MOST_CHARACTERS}")
    parts, quote = [""], ""
    closing: list[str] = []
    letters = iter(text)
    for letter in letters:
        if letter == "," and not closing and not quote:
            parts.append("")
            continue
        parts[-1] += letter
        if quote:
            parts[-1] += next(letters, "") if letter == "\\" else ""
            quote = "" if letter == quote else quote
        elif letter in "'\"":
            quote = letter
        elif letter in "([":
            closing.append(")" if letter == "(" else "]")
        elif letter in ")]" and (not closing or closing.pop() != letter):
            refuse(f"{letter!r} closes no bracket in {shortened(of)} {quoted(text)}")
    if closing or quote:
        refuse(f"{quote or closing[-1]!r} is missing in {shortened(of)} {quoted(text)}")
    return [part.strip() for part in parts]


def literal(text: str) -> Any:
    """Return the Python value of *text*; ValueError if it has none, or is too long."""
    if len(text) > MOST_CHARACTERS:
        raise ValueError
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            return ast.literal_eval(text.strip())
    except (SyntaxError, TypeError, MemoryError, RecursionError) as error:
        raise ValueError from error


def whole_numbers(text: str) -> tuple[int, ...] | None:
    """Return the integers of 4096x2048 or 4096,2048, or None for any other *text*."""
    if not _SIZES.fullmatch(text.strip()):
        return None
    return tuple(map(int, re.split("[x,]", text)))


def read_argument(name: str, text: str, annotated: str = "", depth: int = DEEPEST_TUPLE) -> Any:
    """Return the argument of a signature's entry; *annotated* is the parameter's type, or ""."""
    if text.startswith("(") and text.endswith(")") and depth:
        inside = text[1:-1].strip().removesuffix(",")
        parts = split(inside, name) if inside else []
        return tuple(read_argument(name, part, "", depth - 1) for part in parts)
    if match := _POINTER.fullmatch(text):
        return _pointer(name, text, *match.groups())
    if match := _DESCRIPTOR.fullmatch(text):
        block = _sizes(name, text, match[2])
        base = Pointer(_dtype(name, text, match[1]), INT32_MAX)
        return Descriptor(base, block, Tensor(block).stride(), block)
    try:
        value = literal(text)
    except ValueError:
        value = _worked_out(text)
        if value is None:
            return _number(name, text, annotated)
    if not is_constant(value) or isinstance(value, str | tuple):
        refuse(
            f"{_shown(name, text)} is no argument of a launch; give {shortened(name)} a type, such"
            " as *fp16 or i32, or a number of at most 64 bits"
        )
    return value


def _worked_out(text: str) -> float | None:
    """Return the value of the arithmetic *text*, such as 4*32*56; None if it is none."""
    with contextlib.suppress(InputError):
        expression = parse(text)
        if not expression.names:
            expression.check({}, Kind.NUMBER)
            value: Any = expression.evaluate({})
            return int(value) if isinstance(value, float) and value.is_integer() else value
    return None


def _shown(name: str, text: str) -> str:
    return quoted(f"{name}={text}")


def _pointer(name: str, text: str, dtype: str, sizes: str | None, mark: str | None) -> Any:
    if mark not in MARKS:
        refuse(
            f"{_shown(name, text)} has a mark that is neither {ALIGNMENT} nor 1; *fp16 is an"
            f" address that is a multiple of {ALIGNMENT}, and *fp16:1 is any"
        )
    element = _dtype(name, text, dtype)
    if sizes is None:
        return Pointer(element, INT32_MAX, aligned=mark != "1")
    return Tensor(_sizes(name, text, sizes), element, aligned=mark != "1")


def _dtype(name: str, text: str, dtype: str) -> str:
    if dtype not in {*TRITON_DTYPES, *TRITON_DTYPES.values(), "u1"}:
        refuse(
            f"{_shown(name, text)} has no dtype of a tensor; give one of"
            f" {', '.join(TRITON_DTYPES.values())}, as in {shortened(name)}=*fp16"
        )
    return dtype_name("bool" if dtype == "u1" else dtype)


def _sizes(name: str, text: str, sizes: str) -> tuple[int, ...]:
    numbers = whole_numbers(sizes)
    if not numbers or 0 in numbers or math.prod(numbers) > INT64_MAX // 8:
        refuse(f"{_shown(name, text)} has no sizes in elements, as *fp16[4096x2048] has")
    return numbers


def _number(name: str, text: str, annotated: str) -> Any:
    """Return a stand-in for a number with the type *text*."""
    match = _NUMBER.fullmatch(text)
    kind = {"i1": "u1", "bool": "u1"}.get(match[1], match[1]) if match else ""
    if match is None or kind not in ([annotated] if annotated else PASSED):
        takes = f"the kernel declares it as {annotated}" if annotated else (
            f"a launch passes {', '.join(PASSED)} (numbers of Python), *fp16 (a tensor), None or a"
            " value, and `tune --sizes FILE` columns of the file by name"
        )  # fmt: skip
        refuse(f"{_shown(name, text)} is nothing that a launch passes; {takes}")
    whole = kind[0] in "iu" and kind != "u1"
    if match[2] not in (MARKS if whole else {None}):
        refuse(
            f"{_shown(name, text)} has a mark that is not Triton's; i32:{ALIGNMENT} is a multiple"
            f" of {ALIGNMENT}, i32:1 is 1, and fp32 and u1 have no mark"
        )
    if match[2] == "1":
        return 1
    if not whole:
        return Typical(name, text, kind == "u1" or 0.5)
    least = {"i64": INT32_MAX + 1, "u64": INT64_MAX + 1}.get(kind, 0)
    return Typical(name, text, least + (3 if match[2] is None else ALIGNMENT))


def is_constant(value: Any, depth: int = DEEPEST_TUPLE) -> bool:
    """Return whether *value* can be a constexpr or an option: integers have at most 64 bits."""
    if type(value) is tuple:
        return depth > 0 and all(is_constant(item, depth - 1) for item in value)
    if type(value) is int:
        return -INT64_MAX - 1 <= value <= 2 * INT64_MAX + 1
    return value is None or type(value) in {bool, float, str, Dtype}


def read_constant(name: str, text: str) -> Any:
    """Return the value *text* of a constexpr or an option *name*."""
    language, _, dtype = text.rpartition(".")
    if language in {"tl", "triton.language"}:
        import triton.language as tl

        found = dtype if dtype in TRITON_DTYPES.values() else getattr(tl, dtype, None)
        if not isinstance(found, str | tl.dtype):
            refuse(f"{_shown(name, text)} is no dtype of triton.language; tl.float16 is one")
        return Dtype(str(found))
    try:
        value = literal(text)
    except ValueError:
        value = text if _WORD.fullmatch(text) else ...
    if not is_constant(value):
        refuse(
            f"{_shown(name, text)} is no value; give a number of at most 64 bits, True, None,"
            " tl.float16, or a text, in quotes where it is more than a word"
        )
    return value


LONGEST_SENTENCE = 390
"""The most characters of an error, including its example."""
LONGEST_TEXT = 40
"""The most characters of a user's text that an example repeats."""
USUAL_KNOBS = {"num_warps": "4", "num_stages": "3"}
"""Triton's defaults."""
_SIZE_NAMES = {*"MNKLHDTSG"}
"""Single capital letters that are sizes in most kernels; others are tensors."""


@dataclass(frozen=True)
class Parameters:
    """The parameters of a JITFunction, and what sets them besides the launch line."""

    name: str
    """The kernel's name, shortened for errors."""
    by_name: Mapping[str, Any]
    """Triton's KernelParam by name, in order."""
    setters: Mapping[str, str]
    """"autotuner" or "heuristics", by the name of the parameter or option that they set."""
    source: str

    @classmethod
    def of(cls, function: Any) -> Parameters:
        """Return the parameters of *function*, tuned or not; InputError if it is not Triton's."""
        setters: dict[str, str] = {}
        found = function
        while is_triton_function(found) and not hasattr(found, "params"):
            if triton_class(found) == "Autotuner":
                tuned = [set(configuration.all_kwargs()) for configuration in found.configs]
                setters |= dict.fromkeys(set.intersection(*tuned), "autotuner")
            setters |= dict.fromkeys(getattr(found, "values", ()), "heuristics")
            found = found.fn
        if not is_triton_function(found):
            name = getattr(function, "__name__", function)
            refuse(f"{quoted(name)} is no function that triton.jit made to be compiled")
        parameters = {parameter.name: parameter for parameter in found.params}
        return cls(shortened(found.__name__), parameters, setters, "".join(found.raw_src))

    @functools.cached_property
    def defaults(self) -> dict[str, Any]:
        """The values of the parameters that a launch may omit."""
        return {
            name: plain(parameter.default)
            for name, parameter in self.by_name.items()
            if parameter.default is not inspect.Parameter.empty
        }

    def is_constexpr(self, name: str) -> bool:
        """Return whether *name* is a constexpr parameter."""
        return name in self.by_name and bool(self.by_name[name].is_constexpr)

    def check_argument(self, name: str) -> None:
        """Raise InputError unless a signature may have an entry called *name*."""
        if name not in self.by_name:
            self.refuse_unknown("--signature", name, self.by_name)
        self._check_not_set(name)
        if self.is_constexpr(name):
            refuse(
                f"{shortened(name)} is a constexpr of {self.name}; give it as --constexpr"
                f" {self._example(name)}, not in --signature"
            )

    def check_setting(self, option: str, name: str) -> None:
        """Raise InputError unless *option* of a command line may set *name*."""
        if self.setters.get(name) == "autotuner":
            return
        self._check_not_set(name)
        if name in self.by_name and not self.is_constexpr(name):
            refuse(
                f"{shortened(name)} is no constexpr of {self.name}; give it in --signature, as"
                f" {self._example(name)}"
            )
        if option == "--constexpr" and name not in self.by_name:
            if name in KNOBS:
                refuse(f"{name} is no constexpr of {self.name}; give --{name.replace('_', '-')}")
            constexprs = [known for known in self.by_name if self.is_constexpr(known)]
            self.refuse_unknown(option, name, constexprs)
        if option == "--option" and name in self.by_name and name not in KNOBS:
            refuse(f"{shortened(name)} is a constexpr of {self.name}; give it by --constexpr")

    def _check_not_set(self, name: str) -> None:
        if name in self.setters:
            refuse(
                f"{shortened(name)} is set by the {self.setters[name]} of {self.name}; leave it out"
            )

    def refuse_unknown(self, where: str, name: str, known: Iterable[str]) -> None:
        """Raise InputError: *where* has a *name* that is not in *known*."""
        if name in self.setters:
            refuse(
                f"{where} takes {shortened(name)}, which the {self.setters[name]} of {self.name}"
                " sets for each launch; give a number"
            )
        known = list(known)
        close = difflib.get_close_matches(name, known, n=1)
        there = f"the nearest is {shortened(close[0])}" if close else f"there are {few_of(known)}"
        refuse(f"{where} has {quoted(name)}, which {self.name} does not have; {there}")

    def check_complete(self, texts: Mapping[str, str], settings: Mapping[str, Any]) -> None:
        """Raise InputError, with a working command line, if a parameter has no value."""
        given = {*texts, *settings, *self.setters, *self.defaults}
        missing = [name for name in self.by_name if name not in given]
        if not missing:
            return
        sentence = f"{self.name} is not given {few_of(missing)}"
        asked = {name: text for name, text in texts.items() if len(text) <= LONGEST_TEXT}
        asked |= {
            name: constant_word(values[0])
            for name, values in settings.items()
            if name in self.by_name and len(constant_word(values[0])) <= LONGEST_TEXT
        }
        for example in (self._by_name(asked), self._in_order(asked)):
            if example.isprintable() and len(sentence) + len(example) < LONGEST_SENTENCE:
                refuse(f"{sentence}; give {example}")
        option = "--constexpr" if self.is_constexpr(missing[0]) else "--signature"
        refuse(f"{sentence}; give {option} {self._example(missing[0])} and so on")

    def _by_name(self, asked: Mapping[str, str]) -> str:
        needed = [
            name
            for name in self.by_name
            if name not in self.setters and (name in asked or name not in self.defaults)
        ]
        entry = {name: f"{name}={asked.get(name) or self._guess(name)}" for name in needed}
        signature = ", ".join(entry[name] for name in needed if not self.is_constexpr(name))
        constexprs = [entry[name] for name in needed if self.is_constexpr(name)]
        options = [f"--constexpr {shlex.quote(text)}" for text in constexprs]
        return " ".join([f"--signature {shlex.quote(signature)}"] * bool(signature) + options)

    def _in_order(self, asked: Mapping[str, str]) -> str:
        names = [name for name in self.by_name if name not in self.setters]
        texts = [asked.get(name) or self._guess(name) for name in names]
        return f"--signature {shlex.quote(', '.join(texts))}"

    def _example(self, name: str) -> str:
        return f"{shortened(name)}={self._guess(name)}"

    def _guess(self, name: str) -> str:
        """Return what a launch might pass for parameter *name*, as a user would write it.

        A constexpr determines what is computed, so no value of it is likely.
        """
        default = self.defaults.get(name)
        if name in self.defaults and is_constant(default) and not isinstance(default, str | tuple):
            return constant_word(default)
        if self.is_constexpr(name):
            return USUAL_KNOBS.get(name, "VALUE")
        declared = self.by_name[name].annotation_type.replace("*k", "*")
        kind: str = declared or _likely_type(name, self.source)
        if not self.setters or kind[0] in "*t":
            return kind
        return "0.5" if "f" in kind else "2048"  # autotuners and heuristics need values


def written(
    arguments: Mapping[str, Any], constexprs: Collection[str]
) -> tuple[str, tuple[str, ...]] | None:
    """Return a launch's arguments as `--signature` and the `--constexpr`s have them.

    None if an argument has no such form, as a tuple, a tensor descriptor with its sizes, an empty
    tensor or an infinite float.
    """
    signature, constants = [], []
    for name, value in arguments.items():
        if name in constexprs:
            constants.append(f"{name}={constant_word(value)}")
        elif isinstance(value, Pointer) and value.storage_bytes:
            size = value.storage_bytes // DtypeName(value.dtype).itemsize
            mark = "" if value.aligned else ":1"
            signature.append(f"{name}=*{TRITON_DTYPES[value.dtype]}[{size}]{mark}")
        elif value is None or (isinstance(value, int | float) and math.isfinite(value)):
            signature.append(f"{name}={value!r}")
        else:
            return None
    return ", ".join(signature), tuple(constants)


def constant_word(value: Any) -> str:
    """Return the value of a constexpr or an option as `read_constant` takes it."""
    return str(value) if isinstance(value, Dtype) else repr(value)


def _likely_type(name: str, source: str) -> str:
    word = re.escape(name)
    if re.search(rf"\b{word}\.(?:load|store|gather|scatter)\(", source):
        return "tensordesc<fp16[128,64]>"
    capital = len(name) == 1 and name.isupper() and name not in _SIZE_NAMES
    loaded = rf"\btl\.(?:load|store|atomic_\w+|make_\w+)\(\s*{word}\b"
    if capital or re.search(r"(?i)(?:ptrs?|pointer)$", name) or re.search(loaded, source):
        whole = r"(?i)idx|ids|ind(?:ex|ices)|target|label|lock|count|offs|start|seqlens"
        return "*i32" if re.search(whole, name) else "*fp16"
    return "fp32" if re.search(r"(?i)eps|scale|alpha|beta|momentum|^p$", name) else "i32"

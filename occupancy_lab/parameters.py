"""The parameters of a kernel: what a launch has to say of each, and a command line that says it."""

from __future__ import annotations

import difflib
import functools
import inspect
import re
import shlex
from collections.abc import Mapping  # noqa: TC003 - pydoc and dataclasses read the fields' types
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from occupancy_lab.errors import listed, quoted, shortened
from occupancy_lab.kernel import is_triton_function
from occupancy_lab.launch import Dtype, plain
from occupancy_lab.notation import is_constant, refuse

if TYPE_CHECKING:
    from collections.abc import Iterable

LONGEST_SENTENCE = 390
"""Characters of an error, the example in it included."""
LONGEST_TEXT = 40
"""Characters of what a user wrote that an example repeats."""
KNOBS = ("num_warps", "num_stages")
"""Options that have an option of the command line to themselves."""
_SIZES = {*"MNKLHDTSG"}
"""Single capitals that are sizes in most kernels; the others are tensors."""


@dataclass(frozen=True)
class Parameters:
    """The parameters of a JITFunction, and what sets them besides the launch line."""

    name: str
    """Of the kernel, shortened as errors show it."""
    by_name: Mapping[str, Any]
    """Triton's KernelParam by name, in order."""
    setters: Mapping[str, str]
    """autotuner or heuristics, by the name of the parameter or the option that they set."""
    source: str

    @classmethod
    def of(cls, function: Any) -> Parameters:
        """Return those of *function*: a JITFunction, with or without autotune and heuristics.

        Raises InputError where it is none.
        """
        setters: dict[str, str] = {}
        found = function
        while is_triton_function(found) and not hasattr(found, "params"):
            if type(found).__name__ == "Autotuner":
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
        """The values of the parameters that a launch may leave out."""
        return {
            name: plain(parameter.default)
            for name, parameter in self.by_name.items()
            if parameter.default is not inspect.Parameter.empty
        }

    def is_constexpr(self, name: str) -> bool:
        """Tell whether *name* is a parameter that the kernel is compiled for a value of."""
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
        """Raise InputError: *where* has a *name* that is none of those *known*."""
        if name in self.setters:
            refuse(
                f"{where} takes {shortened(name)}, which the {self.setters[name]} of {self.name}"
                " sets for each launch; give a number"
            )
        known = list(known)
        close = difflib.get_close_matches(name, known, n=1)
        there = f"the nearest is {shortened(close[0])}" if close else f"there are {listed(known)}"
        refuse(f"{where} has {quoted(name)}, which {self.name} does not have; {there}")

    def check_complete(self, texts: Mapping[str, str], settings: Mapping[str, Any]) -> None:
        """Raise InputError, with a command line that would do, where a parameter has no value.

        *texts* are the entries of the signature and *settings* the values of the constexprs.
        """
        given = {*texts, *settings, *self.setters, *self.defaults}
        missing = [name for name in self.by_name if name not in given]
        if not missing:
            return
        sentence = f"{self.name} is not given {listed(missing)}"
        asked = {name: text for name, text in texts.items() if len(text) <= LONGEST_TEXT}
        asked |= {
            name: _constant_text(values[0])
            for name, values in settings.items()
            if name in self.by_name and len(_constant_text(values[0])) <= LONGEST_TEXT
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
        """Return what a launch might pass for parameter *name*, as a user would write it."""
        default = self.defaults.get(name)
        if name in self.defaults and is_constant(default) and not isinstance(default, str | tuple):
            return _constant_text(default)
        if self.is_constexpr(name):
            return _likely_constant(name)
        declared = self.by_name[name].annotation_type.replace("*k", "*")
        kind: str = declared or _likely_type(name, self.source)
        if not self.setters or kind[0] in "*t":
            return kind
        return "0.5" if "f" in kind else "2048"  # autotuners and heuristics ask for values


def _constant_text(value: Any) -> str:
    if isinstance(value, Dtype):
        return str(value)
    return repr(value)


def _likely_type(name: str, source: str) -> str:
    word = re.escape(name)
    if re.search(rf"\b{word}\.(?:load|store|gather|scatter)\(", source):
        return "tensordesc<fp16[128,64]>"
    capital = len(name) == 1 and name.isupper() and name not in _SIZES
    loaded = rf"\btl\.(?:load|store|atomic_\w+|make_\w+)\(\s*{word}\b"
    if capital or re.search(r"(?i)(?:ptrs?|pointer)$", name) or re.search(loaded, source):
        whole = r"(?i)idx|ids|ind(?:ex|ices)|target|label|lock|count|offs|start|seqlens"
        return "*i32" if re.search(whole, name) else "*fp16"
    return "fp32" if re.search(r"(?i)eps|scale|alpha|beta|momentum|^p$", name) else "i32"


def _likely_constant(name: str) -> str:
    if re.search(r"(?i)dtype|type$", name):
        return "tl.float16"
    if re.match(r"(?i)is_|has_|use_|even_|causal", name) or "ACTIVATION" in name.upper():
        return "False"
    for words, size in (("group", "8"), ("warps", "4"), ("stages", "3"), ("block_size$", "1024")):
        if re.search(rf"(?i){words}", name):
            return size
    return "64" if re.match(r"(?i)block|tile|b[a-z]$", name) else "16"

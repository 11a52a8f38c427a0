"""Counts what a kernel reads and writes in a process with Triton's interpreter."""

from collections import Counter
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import numpy as np
import triton.language as tl
from triton.runtime.interpreter import InterpreterBuilder


def counted(run: Callable[..., Any], *arguments: Any) -> Counter[str]:
    """Run a kernel and return how often it loads, and the float32 elements read and written."""
    counts: Counter[str] = Counter()
    load, store = InterpreterBuilder.create_masked_load, InterpreterBuilder.create_masked_store

    def counting_load(builder: Any, pointers: Any, mask: Any, *others: Any) -> Any:
        if pointers.get_element_ty() == tl.float32:
            counts["loads"] += 1
            counts["read"] += int(np.sum(mask.data))
        return load(builder, pointers, mask, *others)

    def counting_store(builder: Any, pointers: Any, value: Any, mask: Any, *others: Any) -> Any:
        if pointers.get_element_ty() == tl.float32:
            counts["written"] += int(np.sum(mask.data))
        return store(builder, pointers, value, mask, *others)

    with patch.multiple(
        InterpreterBuilder, create_masked_load=counting_load, create_masked_store=counting_store
    ):
        run(*arguments)
    return counts

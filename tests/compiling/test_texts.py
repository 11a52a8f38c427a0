"""The texts of a compiled kernel are kept beside its resources."""

import base64
import dataclasses
import json
import zlib
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from occupancy_lab.compiling import Store, resource_key
from occupancy_lab.compiling.compile import compile_launch
from occupancy_lab.compiling.compiler import Compilation, Compiler
from occupancy_lab.compiling.texts import MOST_BYTES, Texts, unpack
from occupancy_lab.gpus import find_gpu
from occupancy_lab.kernel import load_kernel
from occupancy_lab.values import Config, Problem, Resources, Target

SOFTMAX = load_kernel("softmax")
LAUNCH = SOFTMAX.launch(Problem(64, 100), Config(128, 4, 1))
SM_90, GFX942 = (find_gpu(name).target for name in ("sm_90", "gfx942"))
TEXTS = Texts("softmax_kernel", "cuda", 4, 1, 32, "module {}", cubin=b"\x7fELF\x00")


def compilation(target: Target = SM_90, name: str | None = "softmax") -> Compilation:
    """Return the compile of a softmax; without a *name* only this process has the function."""
    return Compilation(SOFTMAX.function, LAUNCH, target, name, "softmax")


@given(st.text(), st.text(), st.none() | st.text(), st.none() | st.binary())
def test_any_texts_come_back(name: str, ttir: str, ptx: str | None, cubin: bytes | None) -> None:
    """Packed texts unpack to the same texts."""
    texts = Texts(name, "cuda", 8, 2, 0, ttir, ptx=ptx, cubin=cubin)
    assert unpack(texts.pack()) == texts


@given(st.text(), st.binary(max_size=200))
def test_what_nobody_packed_is_nothing(text: str, content: bytes) -> None:
    """Any other text, or other packed bytes, unpack to None."""
    assert unpack(text) is None
    assert unpack(base64.b64encode(content).decode()) is None
    assert unpack(packed_json(content.hex())) is None


def packed_json(value: object) -> str:
    """Return *value* packed as texts are."""
    return base64.b64encode(zlib.compress(json.dumps(value).encode())).decode()


@pytest.mark.parametrize(
    "changes",
    [{"ttir": None}, {"num_warps": "4"}, {"shared": -1}, {"ptx": 7}, {"cubin": "no base64"}],
)
def test_texts_of_another_make_are_nothing(changes: dict[str, object]) -> None:
    """A field of a wrong type makes the texts unpack to None."""
    plain = dataclasses.asdict(TEXTS) | {"cubin": None} | changes
    assert unpack(packed_json(plain)) is None


def test_what_grows_too_large_is_nothing() -> None:
    """Texts that would unpack to more than the limit are not unpacked."""
    bomb = zlib.compress(b'{"name": "' + b" " * (MOST_BYTES + 1) + b'"}')
    assert len(bomb) < 100_000
    assert unpack(base64.b64encode(bomb).decode()) is None


@pytest.mark.parametrize("target", [SM_90, GFX942], ids=str)
def test_a_compile_gives_the_texts(tmp_path: Path, target: Target) -> None:
    """A compile returns Triton's and the vendor's texts, and the store keeps them."""
    store = Store(tmp_path)
    found = unpack(compile_launch(SOFTMAX.function, LAUNCH, target, store).texts)
    assert (found.name, found.backend, found.num_warps) == ("softmax_kernel", target.backend, 4)
    assert "tt.func public @softmax_kernel" in found.ttir
    assert (found.ptx is None) == (found.cubin is None) == (target.backend == "hip")
    assert (found.amdgcn is None) == (target.backend == "cuda")
    key = resource_key(SOFTMAX.function, LAUNCH, target)
    assert unpack(store.get_line("texts", key) or "") == found


@pytest.mark.parametrize("name", ["softmax", None])
@pytest.mark.parametrize("keeps", [True, False])
def test_a_compiler_has_the_texts_of_what_it_compiled(
    tmp_path: Path, name: str | None, *, keeps: bool
) -> None:
    """Texts are there without a second compile, whichever process compiled."""
    with closing(Compiler(tmp_path if keeps else None)) as compiler:
        (outcome,) = compiler.compile([compilation(name=name)])
        assert isinstance(outcome, Resources)
        compiler._compile_missing = refuse_to_compile  # type: ignore[assignment,method-assign]
        (texts,) = compiler.texts([compilation(name=name)])
    assert "@softmax_kernel" in texts.ttir


def refuse_to_compile(missing: dict[str, Compilation]) -> None:
    """Make every compile fail."""
    assert not missing


def test_a_store_of_resources_alone_is_completed(tmp_path: Path) -> None:
    """Missing texts of stored resources are compiled when needed."""
    key = resource_key(SOFTMAX.function, LAUNCH, SM_90)
    store = Store(tmp_path)
    store.put(key, Resources(32, 4, 0))
    with closing(Compiler(tmp_path)) as compiler:
        assert compiler.compile([compilation()]) == [Resources(32, 4, 0)]
        assert unpack(store.get_line("texts", key) or "") is None
        (texts,) = compiler.texts([compilation()])
    assert texts is not None
    assert unpack(store.get_line("texts", key) or "") == texts


def test_what_does_not_compile_has_no_texts(tmp_path: Path) -> None:
    """A launch that does not compile has no texts; the others have theirs."""
    wrong = dataclasses.replace(LAUNCH, keywords={**LAUNCH.keywords, "num_warps": 3})
    failing = dataclasses.replace(compilation(), launch=wrong)
    with closing(Compiler(tmp_path)) as compiler:
        found = compiler.texts([failing, compilation(), failing])
    assert [one is None for one in found] == [True, False, True]

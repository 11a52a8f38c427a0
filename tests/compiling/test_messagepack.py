"""The MessagePack decoder, against the format's own table and against damage."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from occupancy_lab.compiling.messagepack import decode
from occupancy_lab.errors import BinaryError


@pytest.mark.parametrize(
    ("encoded", "value"),
    [
        ("00", 0),
        ("7f", 127),
        ("e0", -32),
        ("ff", -1),
        ("c0", None),
        ("c2", False),
        ("c3", True),
        ("cc ff", 255),
        ("cd 0100", 256),
        ("ce 00010000", 65536),
        ("cf 0000000100000000", 2**32),
        ("d0 80", -128),
        ("d1 8000", -32768),
        ("d2 80000000", -(2**31)),
        ("d3 8000000000000000", -(2**63)),
        ("ca 3fc00000", 1.5),
        ("cb 3ff8000000000000", 1.5),
        ("a0", ""),
        ("a3 616263", "abc"),
        ("d9 03 616263", "abc"),
        ("da 0003 616263", "abc"),
        ("db 00000003 616263", "abc"),
        ("c4 02 0001", b"\x00\x01"),
        ("c5 0002 0001", b"\x00\x01"),
        ("c6 00000002 0001", b"\x00\x01"),
        ("90", []),
        ("92 01 a1 61", [1, "a"]),
        ("dc 0002 01 02", [1, 2]),
        ("dd 00000001 c0", [None]),
        ("80", {}),
        ("82 a1 61 01 02 90", {"a": 1, 2: []}),
        ("de 0001 a1 61 91 c3", {"a": [True]}),
        ("df 00000001 a1 61 80", {"a": {}}),
    ],
)
def test_every_form_of_the_format_is_decoded(encoded: str, value: object) -> None:
    """Each form gives the value, and the type, that the specification gives it."""
    found = decode(memoryview(bytes.fromhex(encoded)))
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("encoded", "message"),
    [
        ("", "cut off"),
        ("a3 6162", "cut off"),
        ("cd 01", "cut off"),
        ("92 01", "cut off"),
        ("dd ffffffff 00", "cut off"),
        ("c1", "no value starts with the byte 0xc1"),
        ("d4 01 00", "no value starts with the byte 0xd4"),
        ("81 90 00", "a key is neither"),
        ("91" * 5000, "nested deeper"),
    ],
)
def test_damage_is_refused(encoded: str, message: str) -> None:
    """What is cut off, unknown, badly keyed or endlessly nested is refused with the reason."""
    with pytest.raises(BinaryError, match=message):
        decode(memoryview(bytes.fromhex(encoded)))


@given(data=st.binary(max_size=200))
def test_any_bytes_give_a_value_or_the_one_error(data: bytes) -> None:
    """Nothing but BinaryError comes out of bytes that are not MessagePack."""
    try:
        decode(memoryview(data))
    except BinaryError as error:
        assert str(error).endswith(".")  # noqa: PT017

"""The recording of public launches on a GPU, and its reader."""

import io

from elftools.elf.elffile import ELFFile
from recorded_work import recorded_launches

from occupancy_lab.arguments import Descriptor, Pointer


def test_every_launch_has_its_texts_and_arguments() -> None:
    """Each launch has readable texts of its kernel, its grid, and a value for every parameter."""
    launches = recorded_launches()
    assert len(launches) >= 800
    assert len({(one.package, one.kernel) for one in launches}) >= 240
    assert len({one.id for one in launches}) == len(launches)
    for one in launches:
        assert f"@{one.kernel}" in one.ttir
        assert "ttg." in one.ttgir
        assert len(one.grid) == 3
        tensors = [value for value in one.arguments.values() if isinstance(value, Pointer)]
        descriptors = [value for value in one.arguments.values() if isinstance(value, Descriptor)]
        assert tensors or descriptors
        assert set(one.constexprs) <= set(one.arguments)
    for one in launches[::40]:
        file = ELFFile(io.BytesIO(one.cubin))
        assert any(section.name.startswith(".text.") for section in file.iter_sections())


def test_counted_launches_have_all_texts() -> None:
    """Counted and sampled launches have all texts of a compile, including PTX."""
    counted = [one for one in recorded_launches() if one.executed is not None]
    assert len(counted) >= 110
    assert len({(one.package, one.kernel) for one in counted}) >= 95
    for one in counted:
        assert f".entry {one.kernel}(" in (one.texts.ptx or "")

"""D14: one record of a FlexVolume directory is damaged. The others are kept, noted and removed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cluster.support_flex import QUICK, FlexLab, flex_lab_for
from tests.cluster.support_objects import Objects


@pytest.fixture
def lab(objects: Objects, unique: str, tmp_path: Path) -> Iterator[FlexLab]:
    with flex_lab_for(objects, unique, tmp_path) as made:
        made.paces = replace(made.paces, flexvolume=QUICK)
        yield made


@pytest.mark.needs("root")
def test_an_unreadable_record_stops_its_own_volume_alone(lab: FlexLab) -> None:
    hurt, other = lab.volume("hurt"), lab.volume("other")
    name = hurt["metadata"]["name"]
    lab.serve()
    for volume in (hurt, other):
        assert lab.mount(volume).ok
        (lab.target(volume) / "rows").write_text("a tenant's")
        assert lab.unmount(volume).ok
    record = lab.root / ".localvolume" / "flexvolumes" / f"{name}.json"
    written = record.read_bytes()
    record.write_bytes(written[:20])
    for volume in (hurt, other):
        lab.forget_claim(volume)
    lab.gone(other)
    lab.until(lab.recorded, lambda found: found == [name])
    lab.until(lambda: lab.logged(f"the record of the volume {name} cannot be read"), bool)
    # Nobody can tell whose it is: it stays, and so does the object that tells of it.
    assert lab.read(name) is not None
    assert (lab.root / name / "rows").read_text() == "a tenant's"
    record.write_bytes(written)
    lab.gone(hurt)
    lab.until(lab.recorded, lambda found: not found)

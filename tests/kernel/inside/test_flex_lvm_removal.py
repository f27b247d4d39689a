"""What of logical volumes is removed, and all that is not; and thin pools that fill."""

import dataclasses
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from localvolume.config.pools import LvmConfig
from localvolume.flexvolume.driver import DriverFailed, Owned
from localvolume.flexvolume.drivers.lvm import removal
from localvolume.flexvolume.drivers.lvm.group import Group
from localvolume.host.lvm.commands import Lvm
from tests.host.support_devices import command
from tests.host.support_images import run_here
from tests.suite.units import MIB

from .support_flex import FlexLvm, gone, volume
from .support_lvm import classic_snapshot, unknown_to_its_pool

FULL = r"Input/output error|No space left|Read-only"
DATA = b"tenant data! " * 100_000


@pytest.fixture
def flex(volume_group: str, lvm: Lvm, tmp_path: Path) -> FlexLvm:
    return FlexLvm(lvm, volume_group, tmp_path)


def unmounted(flex: FlexLvm, **tags: str) -> None:
    """pvc-1 with data in it, its PersistentVolume gone."""
    flex.driver.mount(volume(), flex.target())
    Path(flex.target(), "file").write_bytes(DATA)
    flex.driver.unmount("pvc-1", flex.target())
    flex.driver.note("pvc-1", {**gone(), **tags})


def test_purge_takes_just_what_was_listed(flex: FlexLvm) -> None:
    """elastic's six branches of Purge: group and volume missing or unreadable, lvremove failing
    and not; and every reason for which it should have kept its hands off.

    E-FV-48.
    """
    unmounted(flex)
    listed = flex.owned("pvc-1")
    node = f"/dev/{flex.group}/pvc-1"

    def refused(said: str, owned: Owned = listed) -> None:
        with pytest.raises(DriverFailed, match=said):
            flex.driver.remove(owned)
        assert flex.lv("pvc-1").uuid == listed.id

    refused("another volume than", dataclasses.replace(listed, id="x"))
    refused("noted otherwise", dataclasses.replace(listed, tags={**listed.tags, "policy": "X"}))
    fd = os.open(node, os.O_RDONLY)
    assert flex.driver.is_in_use("pvc-1")
    refused("has it open")
    os.close(fd)
    assert not flex.driver.is_in_use("pvc-1")
    flex.driver.note("pvc-1", {"policy": "Retain"})
    refused("noted otherwise")
    refused("not noted as one to be removed", flex.owned("pvc-1"))
    flex.driver.note("pvc-1", dict(listed.tags))
    assert flex.owned("pvc-1") == listed
    classic_snapshot(flex.group, "pvc-1", "shot", 8 * MIB)
    refused("has snapshots, which would be removed with it")
    command("lvremove", "-qq", "-y", f"{flex.group}/shot")
    flex.lvm.retag(flex.lv("pvc-1"), flex.lv("pvc-1").tags, ())
    refused("nothing says that it was made for")
    flex.driver.adopt({"pvc-1": dict(listed.tags)})
    command("dmsetup", "suspend", f"{flex.group}-pvc--1")
    assert flex.driver.is_in_use("pvc-1")
    refused("held up")
    command("dmsetup", "resume", f"{flex.group}-pvc--1")
    flex.driver.remove(listed)
    assert flex.names() == set()
    flex.driver.remove(listed)
    missing = FlexLvm(flex.lvm, "nosuchvg", flex.where)
    with pytest.raises(DriverFailed, match="nosuchvg"):
        missing.driver.remove(listed)


@pytest.mark.parametrize(
    ("kind", "way"), [("thick", "overwrite"), ("thin", "overwrite"), ("thick", "discard")]
)
def test_the_data_goes_before_the_volume(flex: FlexLvm, kind: str, way: str) -> None:
    if kind == "thin":
        flex = FlexLvm(flex.lvm, flex.group, flex.where, thin_pool="tp")
    unmounted(flex, **{"on-removal": way})
    used = flex.lv("tp").data_percent if kind == "thin" else None
    opened = Group(run_here, LvmConfig(group=flex.group))
    if way == "overwrite":
        # A call has its limits: this one ends before it has begun.
        with pytest.raises(DriverFailed, match=r"0 of \d+ bytes are gone; it goes on"):
            removal.remove(opened, flex.owned("pvc-1"), clock=times())
        assert flex.noted("pvc-1")["state"] == "removing"
        with pytest.raises(DriverFailed, match="its data is gone already"):
            flex.driver.mount(volume(), flex.target())
        with pytest.raises(DriverFailed, match="its data is gone already"):
            flex.driver.grow("pvc-1", 40 * MIB)
        flex.lvm.deactivate(flex.lv("pvc-1"))  # a reboot meanwhile
        # Zeros where nothing was would fill a thin pool.
        found = opened.engine.active(flex.lv("pvc-1"))
        noted = flex.noted("pvc-1")
        removal._wiped(opened, found, noted, "overwrite", clock=lambda: 0.0)
        assert DATA[:100] not in Path(f"/dev/{flex.group}/pvc-1").read_bytes()
        if used is not None:
            assert flex.lv("tp").data_percent == used
    flex.driver.remove(flex.owned("pvc-1"))
    assert "pvc-1" not in flex.names()
    if kind == "thick" and way == "overwrite":
        again = ("--size", "20m", "--wipesignatures", "n", "--zero", "n", "--name", "new")
        command("lvcreate", "-qq", *again, flex.group)
        assert not any(Path(f"/dev/{flex.group}/new").read_bytes())


@pytest.mark.parametrize("way", ["overwrite", "discard"])
def test_what_its_pool_was_never_told_of_goes_without(flex: FlexLvm, way: str) -> None:
    """lvcreate was killed: it holds nothing, and can never be activated to be overwritten."""
    thin = FlexLvm(flex.lvm, flex.group, flex.where, thin_pool="tp")
    unmounted(thin, **{"on-removal": way})
    unknown_to_its_pool(thin.group, "pvc-1", "tp")
    # Were it complete, its data would be somebody's, and its pool would be what is broken.
    with pytest.raises(DriverFailed, match="No data available"):
        thin.driver.remove(thin.owned("pvc-1"))
    assert "pvc-1" in thin.names()
    thin.driver.note("pvc-1", {"state": "making"})
    thin.driver.remove(thin.owned("pvc-1"))
    assert "pvc-1" not in thin.names()


def times() -> Callable[[], float]:
    """A clock that jumps ahead with each look at it."""
    ticks = iter(range(0, 1_000_000, 1000))
    return lambda: float(next(ticks))


@pytest.fixture
def impatient() -> Iterator[None]:
    """A thin pool that is full lets writers wait a minute for somebody to extend it."""
    knob = Path("/sys/module/dm_thin_pool/parameters/no_space_timeout")
    before = knob.read_text()
    knob.write_text("2")
    yield
    knob.write_text(before)


def test_a_thin_pool_that_fills(flex: FlexLvm, impatient: None) -> None:
    flex.lvm.create_pool(flex.group, "tp", 16 * MIB)
    thin = FlexLvm(flex.lvm, flex.group, flex.where, thin_pool="tp")
    thin.driver.mount(volume(size_bytes=64 * MIB), thin.target())
    thin.write("tenant data")
    with pytest.raises(OSError, match=FULL):
        fill(Path(thin.target(), "large"))
    assert thin.lv("tp").data_percent == 100
    # Nothing is made where nothing can be written, and it is said why.
    with pytest.raises(DriverFailed, match=r"the thin pool vg0/tp is full \(data 100.0 %"):
        thin.driver.mount(volume("pvc-2"), thin.target("b"))
    assert thin.names() == {"tp", "pvc-1"}
    thin.driver.unmount("pvc-1", thin.target())
    # It can be extended, and what was written is there; or removed.
    command("lvextend", "-qq", "--size", "+32m", f"{thin.group}/tp")
    thin.driver.mount(volume(size_bytes=64 * MIB), thin.target())
    assert thin.read() == "tenant data"
    with pytest.raises(OSError, match=FULL):
        fill(Path(thin.target(), "larger"))
    thin.driver.unmount("pvc-1", thin.target())
    thin.driver.note("pvc-1", gone())
    thin.driver.remove(thin.owned("pvc-1"))
    assert thin.names() == {"tp"}
    thin.driver.mount(volume("pvc-2"), thin.target("b"))
    thin.driver.unmount("pvc-2", thin.target("b"))


def fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file:
        for _ in range(64):
            file.write(os.urandom(MIB))
            os.fsync(file.fileno())

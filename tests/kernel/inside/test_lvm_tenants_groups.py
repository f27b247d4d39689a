"""Volume groups that tenants write onto what is theirs: neither pools, nor in the way of ours.

A tenant who is root in its pod may write any bytes to its raw volume: a group that a pattern
matches would get others' volumes, and of two groups of one name LVM refuses everything.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from localvolume.backends.lvm.survey import survey
from localvolume.config.flexvolume import FlexVolumeConfig
from localvolume.config.pools import LvmConfig, PoolConfig
from localvolume.dynamic.patterns import Patterns
from localvolume.flexvolume.drivers.lvm.driver import LvmDriver
from localvolume.host.block import sysfs
from localvolume.host.lvm.commands import Lvm
from localvolume.host.process.workers import Workers
from tests.host.support_devices import LoopDevice, command, loop_device
from tests.host.support_images import run_here
from tests.suite.units import MIB

from .support_lvm import DISKS, clear, group_on
from .support_lvm_dynamic import LvmLab, lab
from .support_lvm_store import Pool, pool_on

__all__ = ["lab"]

DISK = DISKS[1]
#: In sectors.
_HEADER = 32768


@dataclass
class Tenants:
    """A device that a tenant may write to, and which directories offer devices on the node."""

    device: str
    discovery: tuple[str, ...] = ()

    def forge(self, name: str) -> None:
        """Write a group onto it, as it is done in a pod: there are no others of that name."""
        command("wipefs", "--quiet", "--all", self.device)
        here = f'devices{{scan_lvs=1 dir="/run/pod" scan=["/dev"] filter=["a|^{self.device}$|",'
        options = ("--quiet", "--yes", "--physicalextentsize", "4m")
        command("vgcreate", *options, "--config", f'{here}"r|.*|"]}}', name, self.device)
        # LVM as it is believes it.
        rows = command("vgs", "--noheadings", "--options", "vg_name").split()
        assert name in rows


@pytest.fixture(
    params=["volume", "image", "offered", "partition", "mapped", "used"],
)
def tenants(request: pytest.FixtureRequest, volume_group: str, tmp_path: Path) -> Iterator[Tenants]:
    """What a tenant has, in each way that it may have it."""
    command("/run/modprobe", "loop")
    offers = tmp_path / "offers"
    offers.mkdir()
    with contextlib.ExitStack() as stack:
        if request.param not in ("volume", "image"):
            stack.callback(clear, "nothing", DISK)
        yield _WAYS[request.param](stack, volume_group, offers)


def _volume(stack: contextlib.ExitStack, group: str, offers: Path) -> Tenants:
    """A raw volume of ours, on which the kubelet puts a loop device."""
    lvm = Lvm(run_here)
    lvm.create(group, "tenants", 64 * MIB)
    node = Path(f"/dev/{group}/tenants")
    loop = stack.enter_context(loop_device(backing=node))
    return Tenants(loop.path)


def _image(stack: contextlib.ExitStack, group: str, offers: Path) -> Tenants:
    """An image."""
    return Tenants(stack.enter_context(loop_device(64 * MIB)).path)


def _offered(stack: contextlib.ExitStack, group: str, offers: Path) -> Tenants:
    """A disk that is offered in a discovery directory."""
    (offers / "disk").symlink_to(DISK)
    return Tenants(DISK, (str(offers),))


def _partition(stack: contextlib.ExitStack, group: str, offers: Path) -> Tenants:
    """A partition that the tenant has made on such a disk; the kernel finds it at a reboot."""
    disk = LoopDevice.__new__(LoopDevice)
    disk.path = DISK
    disk.write_table("label: gpt\n,64M,L\n")
    command("partx", "--add", DISK)
    stack.callback(command, "partx", "--delete", DISK)
    # What is written there is beyond the disk's own head, and would be found by who makes it again.
    stack.callback(clear, "nothing", f"{DISK}1")
    (offers / "disk").symlink_to(DISK)
    return Tenants(f"{DISK}1", (str(offers),))


def _mapped(stack: contextlib.ExitStack, group: str, offers: Path) -> Tenants:
    """What the host has made of such a disk."""
    return Tenants(mapped(stack, "tenants-crypt"), _offered(stack, group, offers).discovery)


def _used(stack: contextlib.ExitStack, group: str, offers: Path) -> Tenants:
    """A disk that is a raw volume by others' doing: the kubelet has put a loop device on it."""
    stack.enter_context(loop_device(backing=Path(DISK)))
    return Tenants(DISK)


_WAYS: dict[str, Callable[[contextlib.ExitStack, str, Path], Tenants]] = {
    "volume": _volume,
    "image": _image,
    "offered": _offered,
    "partition": _partition,
    "mapped": _mapped,
    "used": _used,
}


def mapped(stack: contextlib.ExitStack, name: str) -> str:
    """A device on the disk as LUKS makes it: behind a header, but that nothing is encrypted."""
    sectors = int(command("blockdev", "--getsz", DISK)) - _HEADER
    table = f"0 {sectors} linear {DISK} {_HEADER}"
    command("dmsetup", "create", name, "--uuid", f"CRYPT-LUKS2-{name}", "--table", table)
    stack.callback(command, "dmsetup", "remove", "--retry", name)
    (device,) = (
        one for one in Path("/sys/block").glob("dm-*") if sysfs.read(f"{one}/dm/name") == name
    )
    # As with a partition, nothing may be left in it.
    stack.callback(clear, "nothing", f"/dev/{device.name}")
    return f"/dev/{device.name}"


def lives(pool: Pool) -> None:
    """Volumes of the pool are made, grown and removed."""
    offered = pool.offer(volume_mode="Block", mib=8)
    grown = pool.store.grow(offered, 16 * MIB)
    assert grown.size_bytes == 16 * MIB
    report = pool.store.look()
    assert (report.problem, report.warnings) == ("", [])
    assert report.records == {"pvc-1": grown}
    pool.store.purge(pool.store.retire(grown), stop=threading.Event())
    assert pool.store.look().records == {}


def matching(pattern: str, discovery: tuple[str, ...] = (), tag: str = "") -> list[str]:
    """The groups that a pool's pattern finds on this node."""

    async def found() -> list[str]:
        workers = Workers(1)
        patterns = Patterns(workers)
        config = PoolConfig(
            name="p",
            host_dir="",
            mount_dir="",
            provisioner="x",
            backend="lvm",
            lvm=LvmConfig(pattern=pattern, tag=tag).kept_from(discovery),
        )
        try:
            pools = await patterns.expand([config], [])
            assert patterns.problems == {}
            return [pool.lvm.group for pool in pools if pool.lvm]
        finally:
            workers.close()

    return asyncio.run(found())


def test_a_tenants_group_with_the_pools_name_stops_nothing(
    tenants: Tenants, volume_group: str, tmp_path: Path
) -> None:
    pool = pool_on(volume_group, tmp_path, lvm={"discovery": tenants.discovery})
    before = pool.store.look()
    tenants.forge(volume_group)
    after = pool.store.look()
    assert not after.problem
    assert (after.id, after.available_bytes) == (before.id, before.available_bytes)
    lives(pool)
    assert survey(pool.store.config, run_here).problem == ""
    assert pool.store.config.lvm
    driver = LvmDriver(FlexVolumeConfig(lvm=pool.store.config.lvm), run_here)
    assert driver.list_volumes() == []
    pool.store.close()
    # Nor for an agent that is started now, which puts right what killed commands have left.
    again = pool_on(volume_group, tmp_path, lvm={"discovery": tenants.discovery})
    assert again.store.open() == before.id
    again.store.close()


def test_a_tenants_group_is_no_pool_whatever_its_name(tenants: Tenants, volume_group: str) -> None:
    tenants.forge("vg-forged")
    assert matching("vg.*", tenants.discovery) == [volume_group]


def test_a_group_may_need_the_administrators_tag(volume_group: str, second_group: str) -> None:
    tag = "localvolume.dev/pool"
    assert matching("vg.*", tag=tag) == []
    command("vgchange", "--quiet", "--addtag", tag, second_group)
    assert matching("vg.*", tag=tag) == [second_group]
    assert matching("vg.*") == [volume_group, second_group]


def test_a_tenants_group_attracts_no_claims(lab: LvmLab, volume_group: str, lvm: Lvm) -> None:
    """Its own volume, and a disk that the agent offers raw: neither gives any room."""
    command("/run/modprobe", "loop")
    lab.settings["storageClassMap"] = {}
    offers = lab.add_class("raw", volumeMode="Block").directory
    (offers / "disk").symlink_to(DISK)
    lab.settings["pools"]["data"] = {"backend": "lvm", "volumeGroupPattern": "vg.*"}
    cls = lab.storage_class(parameters={"pool": "data"})
    with contextlib.ExitStack() as stack:
        stack.callback(clear, "nothing", DISK)
        lab.start()
        lab.until(lambda: lab.capacity(cls), lambda said: said == ("508Mi", "508Mi"))
        mine = lab.made(lab.claim(cls, size="64Mi", volumeMode="Block"))
        lab.until(lambda: lab.capacity(cls)[0], lambda said: said == "444Mi")
        loop = stack.enter_context(loop_device(backing=Path(mine["spec"]["local"]["path"])))
        Tenants(loop.path).forge("vg-mine")
        Tenants(DISK).forge("vg-disk")
        lab.touch()
        # Of the next claim the agent must have looked anew.
        lab.made(lab.claim(cls, size="4Mi"))
        lab.until(lambda: lab.capacity(cls)[0], lambda said: said == "440Mi")
        claim = lab.claim(cls, size="460Mi")
        lab.claim_event(claim, "ProvisioningFailed", "440Mi of room left")
        lab.stop()
    # People's command sees what the agent sees.
    assert [one["pool"] for one in lab.orphans()] == []


@pytest.mark.parametrize("kind", ["disk", "partition", "mapped"])
def test_an_administrators_group_may_be_on_any_of_these(kind: str, tmp_path: Path) -> None:
    """A disk, a partition, what LUKS or multipath make of one."""
    offers = tmp_path / "offers"
    offers.mkdir()
    with contextlib.ExitStack() as stack:
        stack.callback(clear, "nothing", DISK)
        device = DISK
        if kind == "partition":
            device = _partition(stack, "", offers).device
        elif kind == "mapped":
            device = mapped(stack, "luks-1")
        stack.enter_context(group_on(device, "vg2"))
        pool = pool_on("vg2", tmp_path)
        lives(pool)
        assert matching("vg[0-9]") == ["vg2"]
        pool.end()

"""How a disk is attached, told from its directory in sysfs: as real machines have them."""

from pathlib import Path

import pytest

from localvolume.host.block.disklist import transport_of

PCI = "/sys/devices/pci0000:00/0000:00:1f.2"


@pytest.mark.parametrize(
    ("directory", "transport"),
    [
        (f"{PCI}/ata1/host0/target0:0:0/0:0:0:0/block/sda", "sata"),
        (f"{PCI}/host0/port-0:0/end_device-0:0/target0:0:0/0:0:0:0/block/sdb", "sas"),
        (f"{PCI}/host0/target0:2:0/0:2:0:0/block/sda", "scsi"),
        (f"{PCI}/usb2/2-1/2-1:1.0/host6/target6:0:0/6:0:0:0/block/sdc", "usb"),
        (f"{PCI}/virtio1/block/vda", "virtio"),
        (f"{PCI}/virtio2/host2/target2:0:0/2:0:0:1/block/sda", "scsi"),
        (f"{PCI}/host1/rport-1:0-2/target1:0:0/1:0:0:3/block/sdd", "fc"),
        ("/sys/devices/platform/host3/session1/target3:0:0/3:0:0:1/block/sde", "iscsi"),
        ("/sys/devices/platform/soc/mmc_host/mmc0/mmc0:0001/block/mmcblk0", "mmc"),
        ("/sys/devices/vbd-51712/block/xvda", "xen"),
        ("/sys/devices/virtual/block/loop3", "loop"),
        ("/sys/devices/virtual/block/dm-0", ""),
        ("/sys/devices/virtual/block/md127", ""),
        ("/sys/devices/virtual/block/zram0", ""),
        ("/sys/devices/virtual/block/nbd0", ""),
        ("/sys/devices/rbd/0/block/rbd0", ""),
    ],
)
def test_the_transport(directory: str, transport: str) -> None:
    assert transport_of(directory) == transport


@pytest.mark.parametrize(
    ("ways", "transport"),
    [
        (["pcie"], "nvme"),
        (["pcie", "pcie"], "nvme"),
        (["tcp"], "nvme-of"),
        (["pcie", "rdma"], "nvme-of"),
        ([], "nvme-of"),
    ],
)
def test_an_nvme_disk_over_a_network_is_told_from_a_local_one(
    tmp_path: Path, ways: list[str], transport: str
) -> None:
    subsystem = tmp_path / "nvme-subsystem" / "nvme-subsys0"
    disk = subsystem / "nvme0n1"
    disk.mkdir(parents=True)
    (disk / "device").symlink_to(subsystem)
    for number, way in enumerate(ways):
        controller = subsystem / f"nvme{number}"
        controller.mkdir()
        (controller / "transport").write_text(f"{way}\n")
    assert transport_of(str(disk)) == transport


def test_the_controller_itself_is_above_the_disk(tmp_path: Path) -> None:
    controller = tmp_path / "nvme" / "nvme0"
    disk = controller / "nvme0n1"
    disk.mkdir(parents=True)
    (disk / "device").symlink_to(controller)
    (controller / "transport").write_text("pcie\n")
    assert transport_of(str(disk)) == "nvme"

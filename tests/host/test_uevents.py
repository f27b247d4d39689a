"""Kernel uevents of real loop devices, and of what pretends to be the kernel."""

import asyncio
import contextlib
import os
import socket

import pytest

from localvolume.host.block.uevents import UeventListener
from tests.host.support_devices import command, loop_device
from tests.suite.clock import cost_of_waiting
from tests.suite.sockets import own_sockets
from tests.suite.units import MIB
from tests.suite.until import until_async

Uevent = tuple[str, dict[str, str]]


@pytest.mark.needs("root", "loop")
async def test_a_disk_attached_resized_partitioned_and_detached() -> None:
    seen: list[Uevent] = []
    listener = UeventListener(lambda action, properties: seen.append((action, properties)))
    listener.start()
    listener.start()
    listening = [listener.listening]

    def told(name: str, action: str, **wanted: str) -> bool:
        return any(
            happened == action
            and properties["DEVNAME"] == name
            and wanted.items() <= properties.items()
            for happened, properties in seen
        )

    try:
        with loop_device(4 * MIB) as device:
            number = device.number
            await until_async(lambda: told(device.name, "change"))
            _, properties = next(e for e in seen if e[1]["DEVNAME"] == device.name)
            assert f"{properties['MAJOR']}:{properties['MINOR']}" == number
            assert properties["DEVTYPE"] == "disk"

            os.truncate(device.backing, 8 * MIB)
            command("losetup", "--set-capacity", device.path)
            await until_async(lambda: told(device.name, "change", RESIZE="1"))

            device.partition("1M")
            await until_async(lambda: told(f"{device.name}p1", "add", DEVTYPE="partition"))
            device.forget_partitions()
            await until_async(lambda: told(f"{device.name}p1", "remove"))
            seen.clear()
        await until_async(lambda: told(device.name, "change"))
        assert {properties["SUBSYSTEM"] for _, properties in seen} == {"block"}
    finally:
        listener.close()
    listener.close()
    assert [*listening, listener.listening] == [True, False]


@pytest.mark.needs("root", "loop")
async def test_other_subsystems_are_left_out() -> None:
    seen: list[Uevent] = []
    listener = UeventListener(lambda action, properties: seen.append((action, properties)))
    listener.start()
    try:
        with loop_device(MIB) as device:
            # Writing to "uevent" has the kernel send one; null is of the subsystem mem.
            for path in ("/sys/class/mem/null/uevent", f"/sys/block/{device.name}/uevent"):
                with open(path, "w") as file:
                    file.write("online")
            await until_async(lambda: any(e[0] == "online" for e in seen))
        assert all(e[1]["SUBSYSTEM"] == "block" for e in seen)
    finally:
        listener.close()


@pytest.mark.needs("root", "loop")
async def test_lost_events_are_told_and_later_ones_heard() -> None:
    seen: list[Uevent] = []
    listener = UeventListener(lambda a, p: seen.append((a, p)), buffer=4096)
    listener.start()
    try:
        with loop_device(MIB) as device:
            asked = os.open(f"/sys/block/{device.name}/uevent", os.O_WRONLY)
            for _ in range(200):  # blocking the loop meanwhile: nothing is taken
                os.write(asked, b"change")
            os.close(asked)
            await until_async(lambda: ("overflow", {}) in seen)
            assert len(seen) < 200
            await asyncio.sleep(0.05)
            seen.clear()

            def heard() -> bool:
                # Devices of others have events, too: so little room is soon full once more.
                with open(f"/sys/block/{device.name}/uevent", "w") as file:
                    file.write("offline")
                return any(e[0] == "offline" for e in seen)

            await until_async(heard)
            assert listener.listening
    finally:
        listener.close()


@pytest.mark.needs("root", "loop")
async def test_nobody_but_the_kernel_is_believed() -> None:
    seen: list[Uevent] = []
    listener = UeventListener(lambda action, properties: seen.append((action, properties)))
    listener.start()
    try:
        forged = b"forged@/devices/x\0ACTION=forged\0SUBSYSTEM=block\0DEVNAME=sda\0"
        with socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, 15) as forger:
            # Refused is as good: sending to the group is a privilege.
            with contextlib.suppress(PermissionError, ConnectionRefusedError):
                forger.sendto(forged, (0, 1))
            with contextlib.suppress(PermissionError, ConnectionRefusedError):
                forger.sendto(forged, (os.getpid(), 0))
        with loop_device(MIB) as device:
            await until_async(lambda: any(e[1]["DEVNAME"] == device.name for e in seen))
        assert "forged" not in {action for action, _ in seen}
    finally:
        listener.close()


async def test_a_quiet_socket_costs_nothing_and_closing_leaves_none() -> None:
    before = uevent_sockets()
    listener = UeventListener(lambda action, properties: None)
    listener.start()
    assert len(uevent_sockets() - before) == 1
    # Devices of others have events: some time it is quiet.
    await until_async(lambda: cost_of_waiting(0.3), lambda seconds: seconds < 0.02)
    listener.close()
    assert uevent_sockets() <= before


def uevent_sockets() -> set[str]:
    """The sockets of this process that hear of uevents."""
    return {inode for _, protocol, *_, inode in own_sockets("netlink") if protocol == "15"}

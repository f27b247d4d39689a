"""CSI calls at the agent's socket: what they cost, beside the bare commands of the host."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

from grpclib.client import Channel, UnaryUnaryMethod

from benchmarks.claims import PoolNode, disk
from benchmarks.node import MS_BIND, mount
from benchmarks.table import Figure
from localvolume.config.provisioner import CSI_DRIVER
from localvolume.csi.wire import messages
from localvolume.host.mount.mounts import read_mount_table
from localvolume_lab.controlplane import ControlPlane

MIB, GIB = 1 << 20, 1 << 30
CALLS = 300
MOUNTS = 20
OVERHEAD_GOAL = 2.0
MOUNT_GOAL = 30.0
"""In milliseconds."""

RPCS = {rpc: one for rpcs in messages.SERVICES.values() for rpc, one in rpcs.items()}

_ECHO = """
import asyncio, sys
async def answer(reader, writer):
    while data := await reader.read(1 << 16):
        writer.write(data)
    writer.close()
async def main():
    async with await asyncio.start_unix_server(answer, sys.argv[1]) as server:
        await server.serve_forever()
asyncio.run(main())
"""
_FEW_BYTES = b"x" * 200
"""About what a call without arguments has, with its headers."""


class Driver:
    """The driver of a node, called as the kubelet calls it: each call on a new connection."""

    def __init__(self, node: PoolNode) -> None:
        self.socket = str(node.socket)
        self.kubelet = node.kubelet

    async def call(self, rpc: str, **fields: Any) -> Any:
        channel = Channel(path=self.socket)
        try:
            return await call_on(channel, rpc, **fields)
        finally:
            channel.close()

    async def make(self, name: str, size: int, **more: Any) -> str:
        """A volume of that size; its handle."""
        made = await self.call(
            "CreateVolume",
            name=name,
            capacity_range={"required_bytes": size},
            volume_capabilities=[_CAPABILITY],
            **more,
        )
        handle: str = made.volume.volume_id
        return handle

    async def use(self, handle: str) -> Path:
        """Stage and publish the volume; where it is then."""
        staging, target = self._staging(handle), self._target(handle)
        common: dict[str, Any] = {
            "volume_id": handle,
            "staging_target_path": str(staging),
            "volume_capability": _CAPABILITY,
        }
        await self.call("NodeStageVolume", **common)
        await self.call("NodePublishVolume", **common, target_path=str(target))
        return target

    async def leave(self, handle: str) -> None:
        """Unpublish and unstage it."""
        target, staging = str(self._target(handle)), str(self._staging(handle))
        await self.call("NodeUnpublishVolume", volume_id=handle, target_path=target)
        await self.call("NodeUnstageVolume", volume_id=handle, staging_target_path=staging)

    def _staging(self, handle: str) -> Path:
        digest = hashlib.sha256(handle.encode()).hexdigest()
        path = self.kubelet / "plugins/kubernetes.io/csi" / CSI_DRIVER / digest / "globalmount"
        path.mkdir(parents=True, exist_ok=True)
        return path

    def _target(self, handle: str) -> Path:
        path = self.kubelet / "pods/uid/volumes/kubernetes.io~csi" / handle / "mount"
        path.parent.mkdir(parents=True, exist_ok=True)
        return path


_CAPABILITY = {"mount": {}, "access_mode": {"mode": "SINGLE_NODE_MULTI_WRITER"}}


async def call_on(channel: Channel, rpc: str, **fields: Any) -> Any:
    """The answer to one call on a connection that is there."""
    one = RPCS[rpc]
    request = getattr(messages, one.request)(**fields)
    method = UnaryUnaryMethod(channel, one.path, type(request), getattr(messages, one.response))
    return await method(request)


@contextlib.asynccontextmanager
async def driving(node: PoolNode) -> AsyncIterator[Driver]:
    """The node's agent with images as volumes, once it is ready for calls."""
    driver = Driver(node)
    with node.agent(backend="image", csi=True):
        async with asyncio.timeout(60):
            while not node.socket.exists() or not (await driver.call("Probe")).ready.value:
                await asyncio.sleep(0.05)
        await asyncio.sleep(2)
        try:
            yield driver
        finally:
            # Whatever failed: what is mounted keeps the disk.
            for one in reversed(list(read_mount_table())):
                if one.mount_point.startswith(f"{node.kubelet}/"):
                    subprocess.run(["umount", "--lazy", one.mount_point], check=True)


async def calls(plane: ControlPlane, directory: Path) -> list[Figure]:
    """What a call costs that does nothing; then a volume's way to a pod."""
    node = PoolNode(plane, directory)
    with disk(node.pool, 4 * GIB):
        async with driving(node) as driver:
            return [*await _overhead(driver, directory), await _mounting(driver, node)]


async def _overhead(driver: Driver, directory: Path) -> list[Figure]:
    path = directory / "echo.sock"
    argv = [sys.executable, "-c", _ECHO, str(path)]
    with subprocess.Popen(argv) as echo, contextlib.closing(Channel(path=driver.socket)) as kept:
        try:
            while not path.exists():
                await asyncio.sleep(0.01)
            reader, writer = await asyncio.open_unix_connection(path)
            info, probe, bare = await _medians(
                lambda: driver.call("NodeGetInfo"),
                lambda: call_on(kept, "Probe"),
                lambda: _echoed(reader, writer),
            )
            writer.close()
        finally:
            echo.kill()
    return [
        Figure(f"CSI: Probe, p50 of {CALLS}", probe, "ms", "", OVERHEAD_GOAL, bare),
        Figure("NodeGetInfo, connecting each time", info, "ms", "", OVERHEAD_GOAL, bare),
    ]


async def _echoed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(_FEW_BYTES)
    await reader.readexactly(len(_FEW_BYTES))


async def _medians(*acts: Callable[[], Awaitable[Any]]) -> list[float]:
    """The median of each in ms; they take turns, so that all meet the same machine."""
    took: list[list[float]] = [[] for _ in acts]
    for _ in range(CALLS):
        for act, times in zip(acts, took, strict=True):
            began = time.perf_counter()
            await act()
            times.append(time.perf_counter() - began)
    return [statistics.median(times) * 1000 for times in took]


async def _mounting(driver: Driver, node: PoolNode) -> Figure:
    """Stage and publish, beside mount(2) of an equal filesystem and of the target upon it."""
    ours, bare = [], []
    handle = await driver.make("mounted", 64 * MIB)
    with _bare_device(node.directory) as device:
        for _ in range(MOUNTS):
            began = time.perf_counter()
            await driver.use(handle)
            ours.append(time.perf_counter() - began)
            await driver.leave(handle)
            bare.append(_mount_bare(device, node.directory))
    await driver.call("DeleteVolume", volume_id=handle)
    limit = statistics.median(bare) * 1000
    name = f"CSI: stage and publish, ext4 image, p50 of {MOUNTS}"
    value = statistics.median(ours) * 1000
    return Figure(name, value, "ms", "", limit + MOUNT_GOAL, limit)


@contextlib.contextmanager
def _bare_device(directory: Path) -> Iterator[str]:
    backing = directory / "bare.img"
    with backing.open("wb") as file:
        file.truncate(64 * MIB)
    argv = ["losetup", "--find", "--show", "--direct-io=on", str(backing)]
    device = subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip()
    try:
        subprocess.run(["mkfs.ext4", "-q", device], check=True)
        yield device
    finally:
        subprocess.run(["losetup", "--detach", device], check=True)


def _mount_bare(device: str, directory: Path) -> float:
    staging, target = directory / "bare-staging", directory / "bare-target"
    for path in (staging, target):
        path.mkdir(exist_ok=True)
    began = time.perf_counter()
    mount(device, staging, "ext4")
    mount(str(staging), target, flags=MS_BIND)
    took = time.perf_counter() - began
    for path in (target, staging):
        subprocess.run(["umount", str(path)], check=True)
    return took

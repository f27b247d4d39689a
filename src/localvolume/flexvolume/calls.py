"""What is done when the client asks: check, take the volume's turn, bind, drive, reply."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Final

from localvolume.config.flexvolume import FlexVolumeConfig
from localvolume.flexvolume import protocol
from localvolume.flexvolume.binding import Binding
from localvolume.flexvolume.driver import Driver, DriverFailed, Volume
from localvolume.flexvolume.metrics import FlexMetrics
from localvolume.flexvolume.plan.binding import tags_of
from localvolume.flexvolume.protocol import Asked, Refused, Reply, Target
from localvolume.flexvolume.server import Failed, Route
from localvolume.flexvolume.turns import Turns
from localvolume.host.process.workers import Hung
from localvolume.host.tree import beneath
from localvolume.kube.errors import ApiError
from localvolume.kube.objects import PersistentVolume
from localvolume.volumes import marks
from localvolume.volumes.capacity import bytes_of
from localvolume.volumes.objects import claim_of

log = logging.getLogger(__name__)

CALL_SECONDS: Final = 100.0
"""How long a call may take: the client, and the kubelet after it, wait longer."""

_PLACE: Final = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(eq=False, kw_only=True)
class Calls:
    """The three calls of elastic's protocol. `seconds` is the deadline of each."""

    config: FlexVolumeConfig
    driver: Driver
    turns: Turns
    binding: Binding
    metrics: FlexMetrics
    seconds: float = CALL_SECONDS

    @property
    def routes(self) -> dict[str, tuple[str, Route]]:
        """For the server."""
        return {
            "/init": ("GET", self._counted("init", self._init)),
            "/mount": ("POST", self._counted("mount", self._mount)),
            "/unmount": ("POST", self._counted("unmount", self._unmount)),
        }

    def _counted(self, callout: str, act: Callable[[bytes], Coroutine[Any, Any, Reply]]) -> Route:
        async def route(body: bytes) -> bytes:
            began, result = time.monotonic(), "error"
            try:
                reply = await act(body)
                result = "success" if reply.status == "Success" else "failure"
                return reply.encode()
            except ApiError as error:
                log.warning("%s: %s", callout, error)
                raise Failed(str(error)) from error
            finally:
                self.metrics.calls.labels(callout, result).inc()
                self.metrics.call_seconds.labels(callout).observe(time.monotonic() - began)

        return route

    async def _init(self, _body: bytes) -> Reply:
        return protocol.INIT

    # --- mount ---------------------------------------------------------------------------------

    async def _mount(self, body: bytes) -> Reply:
        call = protocol.read_mount(body)
        return await self._reply(
            "mount", call.target_dir, lambda: self._do_mount(call.target_dir, call.options or {})
        )

    async def _do_mount(self, target_dir: str, options: dict[str, str]) -> str:
        target = self._target(target_dir)
        asked = protocol.read_options(options, target, fs_type=self.config.fs_type)
        async with self.turns.of(asked.name, self.seconds) as turn:
            path = await turn.call(prepare, target)
            async with asyncio.timeout_at(turn.deadline):
                bound = await self.binding.bind(asked, target, fs_type=self.config.fs_type)
            live = bound.volume
            if bound.was_elastics:
                await turn.call(self.driver.adopt, {asked.name: tags_of(live)})
            text = await turn.call(self.driver.mount, self._volume(bound.asked, live), path)
            async with asyncio.timeout_at(turn.deadline):
                await self.binding.told(live)
        log.info("mounted at %s: %s", path, text, extra={"persistentvolume": asked.name})
        return text

    def _volume(self, asked: Asked, live: PersistentVolume) -> Volume:
        size = bytes_of(live.spec.capacity.get("storage", "")) or 0
        claimed = live.metadata.annotations.get(marks.CLAIMED_ANNOTATION, "")
        return Volume(
            name=asked.name,
            size_bytes=asked.size_bytes or size or self.config.default_bytes,
            fs_type=asked.fs_type,
            mkfs_options=asked.mkfs_options,
            read_only=asked.read_only,
            mount_options=asked.mount_options,
            fs_group=asked.fs_group,
            must_exist=bool(claimed) and claimed == claim_of(live),
            tags={key: value for key, value in tags_of(live).items() if value},
        )

    # --- unmount -------------------------------------------------------------------------------

    async def _unmount(self, body: bytes) -> Reply:
        call = protocol.read_unmount(body)
        return await self._reply("unmount", call.target_dir, lambda: self._do_unmount(call))

    async def _do_unmount(self, call: protocol.UnmountCall) -> str:
        target = self._target(call.target_dir)
        name = protocol.check_name(target.name)
        async with self.turns.of(name, self.seconds) as turn:
            path = await turn.call(resolve, target)
            text = await turn.call(self.driver.unmount, name, path)
        log.info("unmounted from %s: %s", path, text, extra={"persistentvolume": name})
        return text

    # --- both ----------------------------------------------------------------------------------

    def _target(self, target_dir: str) -> Target:
        target = protocol.read_target(target_dir)
        if target.driver not in self.config.names:
            raise Refused(f"the driver {target.driver} is not served here")
        return target

    async def _reply(
        self, callout: str, target_dir: str, act: Callable[[], Coroutine[Any, Any, str]]
    ) -> Reply:
        try:
            return protocol.success(await act())
        except TimeoutError:
            text = f"the API server did not answer within {self.seconds:g} s"
        except (Refused, DriverFailed, Hung, OSError) as error:
            text = str(error)
        log.warning("%s of %s failed: %s", callout, target_dir[:300], text)
        return protocol.failure(text)


def prepare(target: Target) -> str:
    """The target's path without symbolic links; makes its last directory if it is missing.

    Raises Refused if there is a link beneath the kubelet's directory, OSError.
    """
    path = resolve(target)
    parent, _, name = path.rpartition("/")
    fd = os.open(parent, _PLACE)
    try:
        try:
            os.mkdir(name, 0o750, dir_fd=fd)
        except FileExistsError:
            os.close(os.open(name, _PLACE, dir_fd=fd))
    finally:
        os.close(fd)
    return path


def resolve(target: Target) -> str:
    """The target's path without symbolic links; parts of it may be missing.

    The administrator chooses where the kubelet's directory lies, links included; the kubelet makes
    what is beneath, without links. Raises Refused, OSError.
    """
    root = os.path.realpath(target.root)
    pods = f"{root}/pods"
    path = f"{pods}/{target.below_pods}"
    parent, _, name = target.below_pods.rpartition("/")
    try:
        fd = os.open(pods, _PLACE)
    except FileNotFoundError:
        return path
    try:
        try:
            inner = beneath.open_beneath(fd, parent, _PLACE)
        except FileNotFoundError:
            return path
        try:
            os.close(os.open(name, _PLACE, dir_fd=inner))
        except FileNotFoundError:
            pass
        finally:
            os.close(inner)
    except (beneath.LeadsOutside, NotADirectoryError) as error:
        raise Refused(f"{target.path} is no directory reached without links") from error
    finally:
        os.close(fd)
    return path

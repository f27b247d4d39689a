"""The node of the kill test: volumes of every kind, and around them what nobody may ever touch."""

import contextlib
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from localvolume_lab.controlplane import ControlPlane
from tests.faults.support_tenants import FileVolume, RawVolume, SignedVolume, Volume
from tests.host.support_devices import LoopDevice, command, formatted, loop_device, mounted
from tests.suite.api import CLASSES
from tests.suite.units import MIB

NODE = "kill-node"


class Ground:
    """`volumes` by (class, path); `settings` is the configuration; `digest` of all the canaries."""

    def __init__(self, directory: Path, plane: ControlPlane, stack: contextlib.ExitStack) -> None:
        self.directory = directory
        self._stack = stack
        self.volumes: dict[tuple[str, str], Volume] = {}
        self.kept: FileVolume
        self.config = directory / "config"
        self.config.mkdir()
        self.settings: dict[str, Any] = {"storageClassMap": {}, "nodeLabelsForPV": []}
        plane.create_node(NODE)
        self._classes(plane)
        self._fill()
        self._canaries()
        for volume in self.volumes.values():
            if isinstance(volume, FileVolume):
                volume.mount()
                self._stack.callback(volume.close)

    def _classes(self, plane: ControlPlane) -> None:
        for name, policy, keys in (
            ("fs", "Delete", {}),
            ("raw", "Delete", {"volumeMode": "Block"}),
            ("signed", "Delete", {}),
            ("keep", "Retain", {}),
        ):
            where = self.directory / name
            where.mkdir()
            self.settings["storageClassMap"][name] = {
                "hostDir": str(where),
                "mountDir": str(where),
                **keys,
            }
            plane.request(
                "POST",
                CLASSES,
                {
                    "metadata": {"name": name},
                    "provisioner": "kubernetes.io/no-provisioner",
                    "reclaimPolicy": policy,
                    "volumeBindingMode": "Immediate",
                },
            )

    def _fill(self) -> None:
        # Endings for the namePattern of one of the adversary's configurations.
        for number in range(2):
            self._tmpfs("fs", f"memory-{number}", files=400)
            self._ext4("fs", f"disk-{number}")
        self._bind("fs", "bound-0")
        self._tmpfs("fs", "memory-4", files=4000)
        self._tmpfs("keep", "kept-0", files=40)
        for number, size in enumerate((64 * MIB, 192 * MIB)):
            path = self.directory / "raw" / f"raw-{number}"
            self._add(RawVolume("raw", path, self._loop(size), size))
        self._add(
            SignedVolume("signed", self.directory / "signed" / "disk-0", self._loop(32 * MIB))
        )

    def _loop(self, size: int) -> LoopDevice:
        return self._stack.enter_context(loop_device(size))

    def _add(self, volume: Volume) -> None:
        path = str(self.directory / volume.class_name / volume.entry)
        self.volumes[volume.class_name, path] = volume

    def _place(self, class_name: str, name: str) -> Path:
        path = self.directory / class_name / name
        path.mkdir()
        # What lies below the mount: seen only while nothing is mounted.
        (path / "underneath").write_text("not yours")
        return path

    def _tmpfs(self, class_name: str, name: str, *, files: int) -> None:
        path = self._place(class_name, name)

        def mount() -> None:
            command("mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", path)

        volume = FileVolume(class_name, path, mount, files=files, returns=False)
        if class_name == "keep":
            self.kept = volume
        self._add(volume)

    def _ext4(self, class_name: str, name: str) -> None:
        path = self._place(class_name, name)
        device = self._stack.enter_context(formatted("ext4"))

        def mount() -> None:
            command("mount", device.path, path)

        self._add(FileVolume(class_name, path, mount, files=800))

    def _bind(self, class_name: str, name: str) -> None:
        """A directory of a larger filesystem that is full of somebody's data."""
        path = self._place(class_name, name)
        larger = self.directory / "larger"
        larger.mkdir()
        device = self._stack.enter_context(formatted("ext4"))
        self._stack.enter_context(mounted(device, larger))
        source = larger / "volume"
        source.mkdir()

        def mount() -> None:
            command("mount", "--bind", source, path)

        self._add(FileVolume(class_name, path, mount, files=400))

    def _canaries(self) -> None:
        """Beside, below and within the discovery directories: what no volume holds."""
        for where in ("fs/plain", "raw/plain", "keep/plain", "fs-neighbour", "larger/other"):
            (self.directory / where / "below").mkdir(parents=True)
            (self.directory / where / "below" / "file").write_text(where)
        (self.directory / "neighbour").mkdir()
        (self.directory / "neighbour" / "file").write_text("where links in volumes lead")
        (self.directory / "fs" / "file").write_text("just a file")
        os.mkfifo(self.directory / "fs" / "fifo")
        (self.directory / "fs" / "neighbour").symlink_to("../neighbour")

    def digest(self) -> dict[str, str]:
        """Everything that must not change, while no volume is mounted."""
        found = {}
        for top in ("fs", "raw", "keep", "fs-neighbour", "larger/other", "neighbour"):
            for base, directories, files in os.walk(self.directory / top):
                for name in directories:
                    found[f"{base}/{name}"] = "directory"
                for name in files:
                    path = Path(base, name)
                    text = path.read_bytes() if path.is_file() else b""
                    found[str(path)] = hashlib.sha256(text).hexdigest()
        return found

    def bare(self) -> dict[str, str]:
        """The same, with all volumes unmounted meanwhile."""
        mounted = [v for v in self.volumes.values() if isinstance(v, FileVolume) and v.there]
        for volume in mounted:
            # The observer may still be looking into it.
            volume.close()
        found = self.digest()
        for volume in mounted:
            volume.mount()
        return found


@contextlib.contextmanager
def ground(directory: Path, plane: ControlPlane) -> Iterator[Ground]:
    with contextlib.ExitStack() as stack:
        yield Ground(directory, plane, stack)

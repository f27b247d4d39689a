"""The node of the dynamic kill test: pools on disks of their own, their classes, and what is there.

What is there is read from the disks directly: nothing of the project decides what the test sees.
"""

import contextlib
import json
import os
import shutil
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from localvolume_lab.controlplane import ControlPlane
from tests.host.support_devices import command, formatted, mounted
from tests.suite.api import CLASSES
from tests.suite.names import LOCAL_PATH, NATIVE
from tests.suite.units import MIB

NODE = "kill-node"
LINKS = Path("/run/localvolume")

_OURS, _FILESYSTEM = ".localvolume", "lost+found"


@dataclass(frozen=True)
class KillClass:
    """A StorageClass of the test; `names`: claims of few names, which come again and again."""

    name: str
    pools: tuple[str, ...]
    parameters: Mapping[str, str]
    policy: str = "Delete"
    provisioner: str = NATIVE
    mode: str = "Filesystem"
    names: bool = False
    image: bool = False


KILL_CLASSES = (
    KillClass("fast", ("one", "two"), {}),
    KillClass("overwritten", ("one",), {"onRemoval": "overwrite"}),
    KillClass("undone", ("two",), {"undoPeriod": "1s"}),
    KillClass("keep", ("one",), {}, policy="Retain"),
    KillClass(
        "pattern",
        ("one", "two"),
        {"pathPattern": "{{ .PVC.Namespace }}/{{ .PVC.Name }}/data"},
        names=True,
    ),
    KillClass(
        "local-path",
        (),
        {"pathPattern": "{{ .PVC.Namespace }}/{{ .PVC.Name }}"},
        provisioner=LOCAL_PATH,
        names=True,
    ),
    KillClass("image", ("images",), {"fsType": "ext4"}, image=True),
    KillClass("block", ("images",), {}, mode="Block", image=True),
)
BY_NAME = {one.name: one for one in KILL_CLASSES}


class MadePool:
    """A pool as it lies on its disk; its directory is the same for host and agent."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._id = ""

    def _names(self, what: str) -> list[str]:
        try:
            return sorted(os.listdir(self.directory / _OURS / what))
        except FileNotFoundError:
            return []

    @property
    def id(self) -> str:
        if not self._id:
            text = (self.directory / _OURS / "pool.json").read_text()
            self._id = str(json.loads(text)["id"])
        return self._id

    def records(self) -> dict[str, dict[str, Any]]:
        """Every record; one that is no JSON raises."""
        where = self.directory / _OURS / "records"
        found = {}
        for file in self._names("records"):
            if file.startswith("."):
                continue
            with contextlib.suppress(FileNotFoundError):
                found[file.removesuffix(".json")] = json.loads((where / file).read_text())["record"]
        return found

    def leftovers(self) -> list[str]:
        """What is there only while something is under way."""
        unfinished = [name for name in self._names("records") if name.startswith(".")]
        # The note that an image is being made goes with the image, or at the next start.
        files = set(self._names("images"))
        unfinished += [
            name
            for name in files
            if not name.endswith(".img") and name.removesuffix(".making") not in files
        ]
        return [*self._names("making"), *self._names("trash"), *unfinished]

    def unexplained(self, named: Collection[str]) -> list[str]:
        """The places below the pool that are none of those `named`, nor on the way to one."""
        return sorted(self._below("", set(named)))

    def _below(self, place: str, named: set[str]) -> Iterator[str]:
        try:
            names = os.listdir(self.directory / place)
        except FileNotFoundError:
            return  # removed since the directory above was read
        for name in names:
            inner = f"{place}/{name}" if place else name
            if inner in (_OURS, _FILESYSTEM) or inner in named:
                continue
            if any(one.startswith(f"{inner}/") for one in named):
                yield from self._below(inner, named)
            else:
                yield inner

    def images(self) -> set[str]:
        names = self._names("images")
        return {name.removesuffix(".img") for name in names if name.endswith(".img")}

    def links(self) -> set[str]:
        with contextlib.suppress(FileNotFoundError):
            return set(os.listdir(LINKS / self.id))
        return set()

    def loops(self) -> list[str]:
        """The names of the images that are under a loop device, each as often as it is."""
        found = []
        for file in Path("/sys/block").glob("loop*/loop/backing_file"):
            with contextlib.suppress(OSError):
                backing = file.read_text().rstrip("\n")
                if backing.startswith(f"{self.directory}/"):
                    name = os.path.basename(backing.removesuffix(" (deleted)"))
                    found.append(f"{file.parts[3]}: {name}" if "(deleted)" in backing else name)
        return sorted(name.removesuffix(".img") for name in found)


class PoolGround:
    """`pools` by name; `settings` is the configuration; `arguments` those of the agent."""

    def __init__(self, directory: Path, plane: ControlPlane, stack: contextlib.ExitStack) -> None:
        self.pools: dict[str, MadePool] = {}
        self.config = directory / "config"
        self.config.mkdir()
        plane.create_node(NODE)
        for kill_class in KILL_CLASSES:
            plane.request("POST", CLASSES, _storage_class(kill_class))
        pools: dict[str, Any] = {}
        for name in ("one", "two", "images", "local-path"):
            where = directory / f"pool-{name}"
            where.mkdir()
            stack.enter_context(mounted(stack.enter_context(_disk()), where))
            self.pools[name] = MadePool(where)
            if name != "local-path":
                classes = [one.name for one in KILL_CLASSES if name in one.pools]
                backend = {"backend": "image"} if name == "images" else {"enforce": "none"}
                pools[name] = {"hostDir": str(where), "classes": classes, **backend}
        stack.callback(self._remove_images)
        self.settings: dict[str, Any] = {"pools": pools, "nodeLabelsForPV": []}
        other = directory / "local-path"
        other.mkdir()
        paths = [str(self.pools["local-path"].directory)]
        node_map = [{"node": "DEFAULT_PATH_FOR_NON_LISTED_NODES", "paths": paths}]
        (other / "config.json").write_text(json.dumps({"nodePathMap": node_map}))
        self.arguments = ["--config", str(self.config), "--local-path-config", str(other)]

    def _remove_images(self) -> None:
        """What of a failed test would keep the disk from going."""
        pool = self.pools["images"]
        for file in Path("/sys/block").glob("loop*/loop/backing_file"):
            with contextlib.suppress(OSError):
                if file.read_text().startswith(f"{pool.directory}/"):
                    command("losetup", "--detach", f"/dev/{file.parts[3]}")
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(LINKS / pool.id)

    def place_of(self, path: str) -> tuple[MadePool, str] | None:
        """The pool of a PersistentVolume's path and the place below it; "" for an image."""
        for pool in self.pools.values():
            if path.startswith(f"{pool.directory}/"):
                return pool, path.removeprefix(f"{pool.directory}/")
        images = self.pools["images"]
        return (images, "") if path.startswith(f"{LINKS}/{images.id}/") else None


def _disk() -> Any:
    return formatted("ext4", size=512 * MIB)


def _storage_class(kill_class: KillClass) -> dict[str, Any]:
    return {
        "metadata": {"name": kill_class.name},
        "provisioner": kill_class.provisioner,
        "parameters": dict(kill_class.parameters),
        "reclaimPolicy": kill_class.policy,
        "volumeBindingMode": "Immediate",
        "allowVolumeExpansion": True,
    }


@contextlib.contextmanager
def pool_ground(directory: Path, plane: ControlPlane) -> Iterator[PoolGround]:
    with contextlib.ExitStack() as stack:
        yield PoolGround(directory, plane, stack)

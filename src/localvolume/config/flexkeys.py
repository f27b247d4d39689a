"""The key `flexvolume`: whether this node serves volumes through FlexVolume, and how."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from yaml.nodes import Node

from localvolume.config.directories import directory
from localvolume.config.flexvolume import (
    BIND_ROOT,
    DEFAULT_BYTES,
    NAMES,
    PLUGIN_DIRECTORY,
    SOCKET,
    FlexVolumeConfig,
)
from localvolume.config.lvmkeys import LVM_KEYS, lvm_config
from localvolume.config.model import ClassConfig
from localvolume.config.pools import PoolConfig, overlaps
from localvolume.config.syntax.keytable import Key, read_keys
from localvolume.config.syntax.readers import Place, duration, list_of, one_of, quoted, text
from localvolume.config.syntax.resources import whole_bytes

# As the kubelet splits the name of a driver's directory, and the API server checks a driver's name.
_DRIVER_NAME: Final = re.compile(r"[A-Za-z0-9][-.A-Za-z0-9]{0,252}/[A-Za-z0-9][-.A-Za-z0-9_]{0,62}")
# sun_path of a unix socket's address has 108 bytes, the last of them for the NUL.
_LONGEST_SOCKET: Final = 107
_BYTES: Final = whole_bytes("10Gi", least=1)
# One group only: with several, each mount would have to find out which one its volume is in.
_LVM_KEYS: Final = tuple(key for key in LVM_KEYS if key.field not in ("pattern", "tag"))
_LVM_FIELDS: Final = {key.field for key in _LVM_KEYS}


def _socket(node: Node, place: Place) -> str | None:
    path = directory(node, place)
    if path is not None and len(path.encode(errors="surrogatepass")) > _LONGEST_SOCKET:
        place.problem(f"is too long for a socket: {_LONGEST_SOCKET} bytes are allowed")
        return None
    return path


def _name(node: Node, place: Place) -> str | None:
    name = text(node, place)
    if name is not None and not _DRIVER_NAME.fullmatch(name):
        place.problem(f"must be the name of a driver, <vendor>/<driver>, not {quoted(name)}")
        return None
    return name


def _names(node: Node, place: Place) -> tuple[str, ...] | None:
    before = len(place.problems)
    found = list_of(_name)(node, place)
    if len(place.problems) > before or found is None:
        return None
    if not found:
        place.problem("names no driver: leave it out for both of ours")
        return None
    for name in sorted({name for name in found if found.count(name) > 1}):
        place.problem(f"names {name} twice")
    return found


KEYS: Final = (
    Key("driver", "driver", one_of("lvm", "bindmount"), "lvm or bindmount", "lvm",
        "what a volume is: a logical volume, or a directory whose size is not enforced"),
    *_LVM_KEYS,
    Key("bindRoot", "bind_root", directory, "absolute path", BIND_ROOT,
        "the directory in which the volumes of driver bindmount are made"),
    Key("socket", "socket", _socket, "absolute path", SOCKET,
        "where the agent serves the driver's client"),
    Key("socketOnHost", "socket_on_host", _socket, "absolute path", "socket",
        "where the client finds that socket on the host"),
    Key("pluginDirectory", "plugin_directory", directory, "absolute path", PLUGIN_DIRECTORY,
        "the kubelet's directory of volume plugins, as the agent sees it"),
    Key("client", "client", directory, "absolute path", "none: nothing is installed",
        "the driver's client, which the agent installs in pluginDirectory"),
    Key("names", "names", _names, "list of <vendor>/<driver>", ", ".join(NAMES),
        "the drivers that are served"),
    Key("fsType", "fs_type", one_of("ext4", "xfs"), "ext4 or xfs", "ext4",
        "the filesystem of volumes that name none"),
    Key("defaultSize", "default_bytes", _BYTES, "quantity", str(DEFAULT_BYTES),
        "the size of volumes that name none"),
    Key("gracePeriod", "grace_seconds", duration(0.0), "duration", "10m",
        "how long a volume stays once its PersistentVolume is gone"),
)  # fmt: skip


def flexvolume(node: Node, place: Place) -> FlexVolumeConfig | None:
    """A reader of `flexvolume`; None, with what is wrong noted, if it cannot be used."""
    before = len(place.problems)
    read = read_keys(node, place, KEYS)
    values = dict(read.values)
    lvm = {field: values.pop(field) for field in _LVM_FIELDS & values.keys()}
    driver = values.get("driver", "lvm")
    if "driver" in read.given and "driver" not in values:
        return None
    if driver == "lvm":
        if "bind_root" in read.given:
            place.at("bindRoot").problem("is for driver bindmount")
        config = lvm_config(lvm, read.given, place)
    else:
        config = None
        for key in _LVM_KEYS:
            if key.field in read.given:
                place.at(key.name).problem("is for driver lvm")
    if len(place.problems) > before:
        return None
    values.setdefault("socket_on_host", values.get("socket", SOCKET))
    return FlexVolumeConfig(lvm=config, **values)


def faults(
    config: FlexVolumeConfig, classes: Mapping[str, ClassConfig], pools: Iterable[PoolConfig]
) -> Iterator[str]:
    """Why it conflicts with these classes and pools: each would take the other's for its own.

    Volume groups may be shared: tags tell whose a volume is.
    """
    if config.driver != "bindmount":
        return
    others: list[tuple[str, str]] = []
    for name, one in classes.items():
        others += [(f"class {name}", one.host_dir), (f"class {name}", one.mount_dir)]
    for pool in pools:
        if pool.host_dir:
            others += [(f"pool {pool.name}", pool.host_dir), (f"pool {pool.name}", pool.mount_dir)]
    told: set[str] = set()
    for whose, path in others:
        if (how := overlaps(config.bind_root, path)) and whose not in told:
            told.add(whose)
            yield f"bindRoot {config.bind_root} {how} {path} of {whose}"

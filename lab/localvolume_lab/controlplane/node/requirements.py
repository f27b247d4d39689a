"""What a machine must have for a real node, and what helps where it has not."""

import os
import shutil
from collections.abc import Mapping, Sequence

from localvolume_lab.controlplane.node import cgroups

#: The package of Debian and alike by the program it has.
PROGRAMS: Mapping[str, str] = {
    "busybox": "busybox-static",
    "containerd": "containerd",
    "ctr": "containerd",
    "ip": "iproute2",
    "ldd": "libc-bin",
    "mount": "mount",
    "openssl": "openssl",
    "runc": "runc",
}
#: Where distributions and upstream put the CNI plugins.
PLUGIN_PLACES = ("/usr/lib/cni", "/opt/cni/bin", "/usr/libexec/cni")
PLUGINS = ("bridge", "host-local", "loopback")


class NodeFailed(Exception):
    """The node did not come up, or not down; the message has the reason, or the log that has it."""


def program(name: str, path: str | None = None) -> str:
    """Its path, also in the directories that are only in root's PATH; raises NodeFailed.

    `path`: the directories to look in instead, as PATH has them.
    """
    usual = f"{os.environ.get('PATH', os.defpath)}:/usr/local/sbin:/usr/sbin:/sbin"
    found = shutil.which(name, path=usual if path is None else path)
    if found is None:
        raise NodeFailed(f"there is no {name}: install {PROGRAMS.get(name, name)}")
    return os.path.abspath(found)


def plugins(places: Sequence[str] = PLUGIN_PLACES) -> str:
    """The directory of the CNI plugins; raises NodeFailed."""
    for place in places:
        if all(os.access(f"{place}/{name}", os.X_OK) for name in PLUGINS):
            return place
    raise NodeFailed("there are no CNI plugins: install containernetworking-plugins")


def missing(path: str | None = None, plugin_places: Sequence[str] = PLUGIN_PLACES) -> str | None:
    """None where a node can run here, as far as that is known without trying; else the remedy.

    `path`: where programs are, if not where they usually are.
    """
    if os.geteuid() != 0:
        return "a real kubelet needs root: run as root"
    absent = []
    for name in PROGRAMS:
        try:
            program(name, path)
        except NodeFailed:
            absent.append(name)
    if absent:
        packages = dict.fromkeys(PROGRAMS[name] for name in absent)
        return f"a real kubelet needs {', '.join(absent)}: install {' '.join(packages)}"
    try:
        plugins(plugin_places)
    except NodeFailed as problem:
        return str(problem)
    if (reason := cgroups.lacking(cgroups.layout())) is not None:
        return f"{reason}, and a real kubelet needs them: run outside of this container"
    return None

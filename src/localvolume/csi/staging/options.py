"""Mount options that a call may give: which are allowed, and how the mount table shows them. Pure.

Those of one mount (`noexec`) are told apart from those of the filesystem (`discard`), which all of
its mounts share. Read-only is always of the mount: the filesystem is replayed, grown and checked
all the same.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from localvolume.config.syntax.readers import quoted
from localvolume.csi.wire.errors import InvalidArgument
from localvolume.host.mount.mounts import Mount
from localvolume.volumes.mountoptions import faults_of

# linux/mount.h's MOUNT_ATTR_*
_ATTRIBUTES: Final = {
    "ro": 0x1,
    "nosuid": 0x2,
    "nodev": 0x4,
    "noexec": 0x8,
    "noatime": 0x10,
    "strictatime": 0x20,
    "nodiratime": 0x80,
    "relatime": 0x0,
}
NODEV: Final = _ATTRIBUTES["nodev"]
_TIMES: Final = ("noatime", "relatime", "strictatime")
_ALL_TIMES: Final = 0x70

_SHARED: Final = {"sync": "async", "dirsync": "", "lazytime": "nolazytime", "discard": "nodiscard"}
_FILESYSTEM: Final[Mapping[str, Mapping[str, str]]] = {
    "ext4": {**_SHARED, "nodelalloc": "delalloc", "grpid": "nogrpid"},
    "xfs": {
        **_SHARED,
        "grpid": "nogrpid",
        "inode32": "inode64",
        "largeio": "nolargeio",
        "swalloc": "",
        "wsync": "",
    },
}
"""The options of each filesystem that the mount table shows while they hold, and their opposites,
which it does not show."""

_REASONS: Final = {
    **dict.fromkeys(
        ("context", "fscontext", "defcontext", "rootcontext", "seclabel"),
        "the container runtime labels the files of a volume",
    ),
    **dict.fromkeys(
        ("nobarrier", "barrier", "data", "noload", "norecovery", "journal_async_commit", "commit"),
        "it can lose data",
    ),
    "errors": "it decides for the whole node",
}
_NOTHING: Final = frozenset({"rw", "defaults"})


@dataclass(frozen=True, slots=True)
class Options:
    """Options of a mount and of its filesystem, each as the mount table shows it.

    A filesystem's option that is to be off is in neither, and in `asked` as it was given.
    """

    mount: frozenset[str]
    filesystem: frozenset[str] = frozenset()
    asked: tuple[str, ...] = ()
    """What is told the filesystem when it is mounted."""

    @property
    def attributes(self) -> int:
        """MOUNT_ATTR_* of them."""
        return sum(_ATTRIBUTES[word] for word in self.mount)

    @property
    def cleared(self) -> int:
        """What has to be cleared of another mount's, so that `attributes` can be set."""
        return _ALL_TIMES if self.mount.intersection(_TIMES) else 0


def read(flags: Sequence[str], fs_type: str, *, read_only: bool) -> Options:
    """The options that a call gives for a filesystem; `fs_type` "" for a directory.

    Raises InvalidArgument for one that is not allowed, by its name.
    """
    if faults := faults_of(flags):
        raise InvalidArgument(faults[0])
    known = _FILESYSTEM.get(fs_type, {})
    opposites = {off: on for on, off in known.items() if off}
    words = [word for flag in flags for word in flag.split(",") if word not in _NOTHING]
    for word in words:
        if word not in _ATTRIBUTES and word not in known and word not in opposites:
            raise InvalidArgument(_why_not(word, fs_type))
    _check_consistent(words, opposites)
    mount = {word for word in words if word in _ATTRIBUTES}
    if read_only:
        mount.add("ro")
    return Options(
        frozenset(mount),
        frozenset(word for word in words if word in known),
        tuple(dict.fromkeys(word for word in words if word in known or word in opposites)),
    )


def of_device(wanted: Options) -> Options:
    """What the mount of a device has with these options: the kernel's default is relatime."""
    if wanted.mount.intersection(_TIMES):
        return wanted
    return Options(wanted.mount | {"relatime"}, wanted.filesystem, wanted.asked)


def on_top_of(below: Mount, wanted: Options) -> Options:
    """What a bind mount of another mount has with these options: that mount's, and these."""
    inherited = shown(below.options)
    if wanted.mount.intersection(_TIMES):
        inherited -= set(_TIMES)
    return Options(inherited | wanted.mount)


def without_nodev(wanted: Options) -> Options:
    """The options for a mount of a device node, which could not be opened with nodev."""
    return Options(wanted.mount - {"nodev"}, wanted.filesystem, wanted.asked)


def differences(found: Mount, wanted: Options, fs_type: str = "") -> str:
    """How a mount differs from what is wanted, in words; "" if it does not.

    With `fs_type` the options of the filesystem are compared as well.
    """
    has, needs = shown(found.options), shown(",".join(wanted.mount))
    known = _FILESYSTEM.get(fs_type, {})
    has |= {word for word in found.super_options.split(",") if word in known}
    # A filesystem goes without `discard`, and says no more of it, where its device has none.
    needs |= wanted.filesystem - ({"discard"} - has)
    if has == needs:
        return ""
    return f"its options are {_listed(has)}, and {_listed(needs)} are asked for"


def shown(options: str) -> frozenset[str]:
    """Those of a mount's options, as the mount table has them, that are known here.

    It shows strictatime by no word at all.
    """
    return frozenset(options.split(",")) & (_ATTRIBUTES.keys() - {"strictatime"})


def _check_consistent(words: Collection[str], opposites: Mapping[str, str]) -> None:
    for off, on in opposites.items():
        if on in words and off in words:
            raise InvalidArgument(f"the mount options {on} and {off} exclude each other")
    times = [word for word in _TIMES if word in words]
    if len(times) > 1:
        raise InvalidArgument(f"the mount options {' and '.join(times)} exclude each other")


def _why_not(word: str, fs_type: str) -> str:
    what = f"a volume of {fs_type}" if fs_type else "a volume that is a directory"
    text = f"{what} cannot be mounted with {quoted(word)}"
    reason = _REASONS.get(word.partition("=")[0])
    return f"{text}: {reason}" if reason else text


def _listed(words: frozenset[str]) -> str:
    return ",".join(["ro" if "ro" in words else "rw", *sorted(words - {"ro"})])

"""What the client asks the daemon and what the daemon answers, byte for byte as elastic's did.

Pure: nothing here reaches the disk or the API server.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeVar

import msgspec

from localvolume.config.mkfsoptions import mkfs_options
from localvolume.kube.objects import FlexVolumeSource
from localvolume.volumes.mountoptions import faults_of

T = TypeVar("T")

SIZE: Final = "sizeBytes"
MKFS_OPTIONS: Final = "mkfsOptions"
MOUNT_OPTIONS: Final = "mountOptions"
ON_REMOVAL: Final = "onRemoval"
"""The options of a PersistentVolume: bytes; further arguments of mkfs, separated by spaces; mount
options, separated by commas; what becomes of the data in the end, one of WAYS."""

WAYS: Final = ("delete", "overwrite", "discard")

OF_KUBELET: Final = "kubernetes.io/"
FS_TYPE: Final = "kubernetes.io/fsType"
READ_WRITE: Final = "kubernetes.io/readwrite"
PV_NAME: Final = "kubernetes.io/pvOrVolumeName"
FS_GROUP: Final = "kubernetes.io/mounterArgs.FsGroup"
POD_NAME: Final = "kubernetes.io/pod.name"
POD_NAMESPACE: Final = "kubernetes.io/pod.namespace"
POD_UID: Final = "kubernetes.io/pod.uid"

FS_TYPES: Final = ("ext4", "xfs")
MOST_BYTES: Final = 1 << 60
_NUMBER: Final = re.compile(r"[0-9]{1,19}")
_MOST_GROUP: Final = 2**32 - 2
# A name of a PersistentVolume, as the API server allows it (DNS subdomain).
_NAME: Final = re.compile(r"[a-z0-9](?:[-.a-z0-9]{0,251}[a-z0-9])?")
_TARGET: Final = re.compile(r"(/.+)/pods/([^/]+)/volumes/([^/~]+)~([^/]+)/([^/]+)")


class BadCall(ValueError):
    """The call cannot be read: answered in plain text with status 500, as by elastic's daemon."""


class Refused(Exception):
    """The call is understood, but is not for us or not valid: a Failure with this text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """An answer in FlexVolume's form; `device` is left out if it is empty."""

    status: Literal["Success", "Failure"]
    message: str
    device: str = ""

    def encode(self) -> bytes:
        """As one JSON object, its keys in elastic's order."""
        fields: dict[str, object] = {"status": self.status, "message": self.message}
        if self.device:
            fields["device"] = self.device
        fields["capabilities"] = {"attach": False}
        return msgspec.json.encode(fields)


def success(message: str) -> Reply:
    """It was done."""
    return Reply(status="Success", message=message)


def failure(message: str) -> Reply:
    """It was not done."""
    return Reply(status="Failure", message=message)


INIT: Final = success("driver is available")


class MountCall(msgspec.Struct, frozen=True, rename="camel"):
    """POST /mount."""

    target_dir: str = ""
    options: dict[str, str] | None = None


class UnmountCall(msgspec.Struct, frozen=True, rename="camel"):
    """POST /unmount."""

    target_dir: str = ""


_mount: Final = msgspec.json.Decoder(MountCall)
_unmount: Final = msgspec.json.Decoder(UnmountCall)


def read_mount(body: bytes) -> MountCall:
    """Raises BadCall."""
    return _read(_mount, body)


def read_unmount(body: bytes) -> UnmountCall:
    """Raises BadCall."""
    return _read(_unmount, body)


def _read(decoder: msgspec.json.Decoder[T], body: bytes) -> T:
    if not body.strip():
        raise BadCall("EOF")
    try:
        return decoder.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BadCall(str(error)) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where the kubelet wants a volume: `root` is its directory, above `pods`."""

    path: str
    root: str
    pod_uid: str
    driver: str
    name: str

    @property
    def below_pods(self) -> str:
        """The path beneath `<root>/pods`."""
        return self.path.removeprefix(f"{self.root}/pods/")


def read_target(path: str) -> Target:
    """A kubelet's volume directory, `.../pods/<uid>/volumes/<vendor>~<driver>/<name>`.

    Raises Refused for any other path, and for one that is not absolute and clean.
    """
    found = _TARGET.fullmatch(path)
    parts = path.split("/")[1:]
    if found is None or any(part in ("", ".", "..") for part in parts) or "\0" in path:
        raise Refused(f"{path[:300]!r} is not the directory of a FlexVolume in a pod")
    root, uid, vendor, driver, name = found.groups()
    return Target(path=path, root=root, pod_uid=uid, driver=f"{vendor}/{driver}", name=name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The options of a mount, checked.

    `size_bytes` is 0 if none is given; `pod` is (namespace, name), None if no pod is named. What
    they say of the volume itself counts only once it is taken from the PersistentVolume
    (`as_volume_says`).
    """

    name: str
    size_bytes: int
    fs_type: str
    mkfs_options: tuple[str, ...]
    mount_options: tuple[str, ...]
    read_only: bool
    fs_group: int | None
    pod: tuple[str, str] | None


def read_options(options: Mapping[str, str], target: Target, *, fs_type: str) -> Asked:
    """What the options ask for. Raises Refused, naming the option; secrets are never repeated.

    `fs_type` is the default.
    """
    name = check_name(options.get(PV_NAME) or target.name)
    if name != target.name:
        # An inline volume of a pod may claim any name, and is not to be believed.
        raise Refused(f"the volume {name!r} is to be mounted at a directory of {target.name!r}")
    mode = options.get(READ_WRITE, "rw")
    if mode not in ("ro", "rw"):
        raise Refused(f"{READ_WRITE} must be ro or rw, not {mode[:40]!r}")
    asked = Asked(
        name=name,
        size_bytes=0,
        fs_type=fs_type,
        mkfs_options=(),
        mount_options=(),
        read_only=mode == "ro",
        fs_group=_number(options, FS_GROUP, _MOST_GROUP),
        pod=_pod(options, target),
    )
    return _with_volume(asked, options, fs_type)


def as_volume_says(asked: Asked, source: FlexVolumeSource, *, fs_type: str) -> Asked:
    """Returns what is asked, with all that concerns the volume itself from its PersistentVolume.

    A pod that has the claim may also describe a FlexVolume inline, with the PersistentVolume's name
    and a size and options of its tenant's choice; the call does not tell one from the other. So
    only what the kubelet itself says of the pod counts, and that the mount is to be read-only.
    Raises Refused if the PersistentVolume's options are not valid.
    """
    options = {**source.options, FS_TYPE: source.fs_type or ""}
    read_only = asked.read_only or bool(source.read_only)
    return _with_volume(replace(asked, read_only=read_only), options, fs_type)


def check_name(name: str) -> str:
    """Returns the name if a PersistentVolume may have it; raises Refused if not."""
    if not _NAME.fullmatch(name):
        raise Refused(f"{name[:260]!r} is no name of a PersistentVolume")
    return name


def _with_volume(asked: Asked, options: Mapping[str, str], fs_type: str) -> Asked:
    """Adds what these options say of the volume. Raises Refused."""
    known = {SIZE, MKFS_OPTIONS, MOUNT_OPTIONS, ON_REMOVAL}
    for key in sorted(options):
        if key not in known and not key.startswith(OF_KUBELET):
            raise Refused(f"there is no option {key[:100]!r}; there are {', '.join(sorted(known))}")
    if options.get(ON_REMOVAL, "") not in ("", *WAYS):
        raise Refused(f"{ON_REMOVAL} must be {', '.join(WAYS)}")
    wanted = options.get(FS_TYPE) or fs_type
    if wanted not in FS_TYPES:
        raise Refused(f"no filesystem {wanted[:40]!r} is made here: {' or '.join(FS_TYPES)}")
    return replace(
        asked,
        size_bytes=_number(options, SIZE, MOST_BYTES) or 0,
        fs_type=wanted,
        mkfs_options=_mkfs_options(options, wanted),
        mount_options=_mount_options(options),
    )


def _number(options: Mapping[str, str], key: str, most: int) -> int | None:
    text = options.get(key, "")
    if not text:
        return None
    if not _NUMBER.fullmatch(text) or int(text) > most:
        raise Refused(f"{key} must be a whole number up to {most}, not {text[:40]!r}")
    return int(text)


def _mkfs_options(options: Mapping[str, str], fs_type: str) -> tuple[str, ...]:
    try:
        return mkfs_options(fs_type, options.get(MKFS_OPTIONS, ""))
    except ValueError as error:
        raise Refused(f"{MKFS_OPTIONS} {error}") from error


def _mount_options(options: Mapping[str, str]) -> tuple[str, ...]:
    text = options.get(MOUNT_OPTIONS, "")
    words = text.split(",") if text else []
    if faults := faults_of(words):
        raise Refused(f"{MOUNT_OPTIONS}: {faults[0]}")
    return tuple(words)


def _pod(options: Mapping[str, str], target: Target) -> tuple[str, str] | None:
    if not {POD_NAME, POD_NAMESPACE, POD_UID} & options.keys():
        return None
    namespace, name = options.get(POD_NAMESPACE, ""), options.get(POD_NAME, "")
    if options.get(POD_UID, target.pod_uid) != target.pod_uid or not _NAME.fullmatch(namespace):
        raise Refused("the pod that is named is not the one whose directory this is")
    if not _NAME.fullmatch(name):
        raise Refused("what is named is no pod")
    return namespace, name

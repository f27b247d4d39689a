"""Where dynamic volumes are made: the pools of a node, however they were configured."""

from __future__ import annotations

import hashlib
import itertools
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from localvolume.config.provisioner import DYNAMIC_PROVISIONER as DYNAMIC_PROVISIONER
from localvolume.config.provisioner import OURS

GROUP_NAME: Final = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9_+.][A-Za-z0-9_+.-]{0,126}")
"""What a volume group may be called (lvm(8), "Valid names")."""

Flavor = Literal["native", "kutti", "local-path", "openebs"]
"""Whose names and defaults apply: ours, or those of the provisioner that is replaced."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LvmConfig:
    """What a pool of logical volumes is made of: one volume group, or one thin pool in it.

    `group` is the volume group's name. If `pattern` is set (a regular expression that a whole name
    must match), the pool stands for every group that matches and, if `tag` is set, has that tag or
    volumes already; `group` is "" until it is expanded (`expanded`). `thin_pool` is the name of the
    thin pool, "" for thick volumes. `stripes` 0 and `stripe_bytes` 0 leave the choice to LVM.
    `options` are further arguments of lvcreate. `command_prefix` goes before every LVM command
    (nsenter on hosts whose own LVM is to be used). `option_classes` are options by the name that
    StorageClasses may ask for (TopoLVM's). `by_name_only`: classes that name no device class have
    no volumes here, as in TopoLVM if a device class is not the default. `discovery` are the
    directories whose devices are given to tenants: LVM must not look at those (`kept_from`).
    """

    group: str = ""
    pattern: str = ""
    tag: str = ""
    thin_pool: str = ""
    stripes: int = 0
    stripe_bytes: int = 0
    options: tuple[str, ...] = ()
    command_prefix: tuple[str, ...] = ()
    option_classes: tuple[tuple[str, tuple[str, ...]], ...] = ()
    by_name_only: bool = False
    discovery: tuple[str, ...] = ()

    def kept_from(self, directories: Iterable[str]) -> LvmConfig:
        """The same, with these as the discovery directories of this node."""
        return replace(self, discovery=tuple(sorted({*directories} - {""})))

    @property
    def groups(self) -> str:
        """A pattern of the volume groups in which volumes are made."""
        return self.pattern or re.escape(self.group)

    @property
    def place(self) -> str:
        """What volumes are taken from: `<group>`, or `<group>/<thin pool>`; "" for a pattern."""
        return "/".join(part for part in (self.group, self.thin_pool) if part and self.group)

    def layout(self, option_class: str = "") -> tuple[int, int, tuple[str, ...]]:
        """Stripes, stripe size in bytes and further options of a new volume.

        An option class replaces all three. Raises KeyError if there is no such class.
        """
        if option_class:
            return 0, 0, dict(self.option_classes)[option_class]
        return self.stripes, self.stripe_bytes, self.options


LEAST_INLINE_BYTES: Final = 16 << 20
"""The least that a volume in a pod's own spec has. The smallest one takes a device, a mount and a
record all the same, so this bounds how many there can be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InlineConfig:
    """What pods may take of a pool by volumes in their own spec, which anybody makes who may create
    pods: `largest_bytes` for one volume, and `total_bytes` for all of them in the pool."""

    largest_bytes: int
    total_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolConfig:
    """One place in which volumes are made: a directory, or with `lvm` a volume group.

    A pool with `lvm` has no directories: `host_dir` and `mount_dir` are "", and `backend` is "lvm".
    `of` is the configured pool's name if this one was expanded from a pattern, else "".
    `host_dir` and `mount_dir` are clean absolute paths: the directory as the host and as this
    process sees it. `provisioner` is what classes must name to be served from here; `classes`
    limits that to those named, and is empty if every class of the provisioner may be served.
    `sparse`: images take space as they are written to, so that a full host can break them.
    `enforce` False: sizes are promised and not enforced (directory backend only). `reserve_bytes`
    of the filesystem or volume group are never promised; `overbook` is how many times the rest may
    be. `must_be_mounted`: the directory must be (below) a mount point other than `/`.
    `undo_seconds` is how long a removed volume can be brought back, unless its class says
    otherwise. `purge_files_per_second` None: no limit. `inline` None: pods have no volumes of their
    own there.
    """

    name: str
    host_dir: str
    mount_dir: str
    provisioner: str
    flavor: Flavor = "native"
    classes: tuple[str, ...] = ()
    backend: Literal["directory", "btrfs", "image", "lvm"] = "directory"
    lvm: LvmConfig | None = None
    of: str = ""
    enforce: bool = True
    sparse: bool = False
    reserve_bytes: int = 0
    overbook: float = 1.0
    must_be_mounted: bool = True
    undo_seconds: float = 0.0
    purge_files_per_second: float | None = None
    inline: InlineConfig | None = None

    def serves(self, class_name: str, provisioner: str) -> bool:
        """Whether volumes of that class may be made here."""
        ours = self.provisioner == DYNAMIC_PROVISIONER and provisioner in OURS
        named = not self.classes or class_name in self.classes
        return named and (ours or provisioner == self.provisioner)


def name_of(prefix: str, directory: str) -> str:
    """A name for a pool that has none of its own: always the same for the same directory.

    A digest of the path keeps the names of two directories apart. The name is a DNS label.
    """
    last = (
        re.sub("[^a-z0-9]+", "-", directory.rpartition("/")[2].lower()).strip("-")[:30].strip("-")
    )
    digest = hashlib.sha256(directory.encode(errors="surrogatepass")).hexdigest()[:6]
    return "-".join(part for part in (prefix, last, digest) if part)


def overlaps(one: str, other: str) -> str:
    """How the first of two clean directories lies to the second: "is", "lies inside", "contains".

    "" if they have nothing in common, or if one is "": a pool without directories.
    """
    if not one or not other:
        return ""
    if one == other:
        return "is"
    if one.startswith(other + "/"):
        return "lies inside"
    return "contains" if other.startswith(one + "/") else ""


def faults_between(
    pools: Sequence[PoolConfig], discovery: Iterable[tuple[str, str, str]] = ()
) -> list[str]:
    """Why these pools, whatever their source, conflict with each other, in sentences.

    `discovery` are the class, hostDir and mountDir of the discovery directories. Names must differ,
    and no directory may be, hold or lie in another: one would take the other's volumes for its own.
    Nor may two pools have the same volume group (or thin pool in it) by name.
    """
    faults: list[str] = []
    for one, two in itertools.combinations(pools, 2):
        if one.name == two.name:
            faults.append(f"pool {two.name} at {_at(two)} has the name of one at {_at(one)}")
        faults += _between(two, f"pool {one.name}", one.host_dir, one.mount_dir)
        faults += _same_group(one, two)
    for class_name, host_dir, mount_dir in discovery:
        for pool in pools:
            faults += _between(pool, f"class {class_name}", host_dir, mount_dir)
    return faults


def in_a_groups_directory(path: str, groups: Iterable[str]) -> str:
    """The directory of logical volumes' devices that the path is or lies in, "" for none.

    `groups` are patterns of the volume groups that count (`LvmConfig.groups`). /dev/mapper has the
    volumes of all of them.
    """
    top, name, *_ = [*path.split("/")[1:3], ""]
    if top == "dev" and any(name == "mapper" or re.fullmatch(one, name) for one in groups):
        return f"/dev/{name}"
    return ""


def faults_of_devices(
    groups: Collection[str], discovery: Iterable[tuple[str, str, str]]
) -> Iterator[str]:
    """Why these discovery directories (class, hostDir, mountDir) are refused: all that lies in them
    is offered, and the volumes in these groups belong to claims."""
    for class_name, host_dir, mount_dir in discovery:
        for key, path in (("hostDir", host_dir), ("mountDir", mount_dir)):
            if where := in_a_groups_directory(path, groups):
                yield (
                    f"{key} of class {class_name}, {path}: in {where} are the logical volumes of a"
                    " pool, which are made for claims and must not be offered to others"
                )
                break


def _at(pool: PoolConfig) -> str:
    if pool.lvm is None:
        return pool.host_dir
    return pool.lvm.place or f"volume groups {pool.lvm.pattern}"


def _same_group(one: PoolConfig, two: PoolConfig) -> Iterable[str]:
    if one.lvm is None or two.lvm is None:
        return
    if one.lvm.place and one.lvm.place == two.lvm.place:
        yield f"{_at(two)} of pool {two.name} is that of pool {one.name}"
    for named, other in ((one, two), (two, one)):
        if other.lvm and other.lvm.pattern and named.name.startswith(f"{other.name}."):
            yield f"pool {named.name} has a name that a volume group of pool {other.name} may get"


def expanded(
    configs: Sequence[PoolConfig], groups: Mapping[str, Collection[str]], kept: Collection[str] = ()
) -> tuple[PoolConfig, ...]:
    """The pools, each pattern replaced by one pool for every volume group that it matches.

    `groups` are the groups with their tags. `kept` are the names of pools that need no tag, as
    they have volumes. A pool made from a pattern is named `<pool>.<group>`. A group, or the thin
    pool in it, belongs to one pool only: the one that names it, else that of the first pattern
    that matches it.
    """
    found = sorted({group for group in groups if GROUP_NAME.fullmatch(group)})
    taken = {config.lvm.place for config in configs if config.lvm and config.lvm.place}
    pools: list[PoolConfig] = []
    for config in configs:
        lvm = config.lvm
        if lvm is None or not lvm.pattern:
            pools.append(config)
            continue
        pattern = re.compile(lvm.pattern)
        for group in found:
            one = replace(lvm, group=group, pattern="", tag="")
            name = f"{config.name}.{group}"
            chosen = not lvm.tag or lvm.tag in groups[group] or name in kept
            if pattern.fullmatch(group) and chosen and one.place not in taken:
                taken.add(one.place)
                pools.append(replace(config, name=name, of=config.name, lvm=one))
    return tuple(pools)


def _between(pool: PoolConfig, other: str, host_dir: str, mount_dir: str) -> Iterable[str]:
    if how := overlaps(pool.host_dir, host_dir):
        yield f"{pool.host_dir} of pool {pool.name} {how} {host_dir} of {other}"
    elif how := overlaps(pool.mount_dir, mount_dir):
        yield f"mountDir {pool.mount_dir} of pool {pool.name} {how} mountDir {mount_dir} of {other}"

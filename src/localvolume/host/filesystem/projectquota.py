"""Project quotas of xfs and ext4: a limit on what a directory and all below it may hold.

A directory is given a project id while it is empty. What is made below it inherits the id, and the
kernel counts and limits the blocks of everything that carries it. The kernel has two gaps here:

- ext4 stops nobody who has CAP_SYS_RESOURCE (root); xfs stops root as well.
- The owner of a file may take it out of its project (chattr -p), or charge it to any other,
  unless in a user namespace.
"""

import contextlib
import ctypes
import errno
import os
import struct
from typing import Final, NamedTuple

from localvolume.host.block import sysfs
from localvolume.host.filesystem.inodeflags import read_attributes, write_attributes
from localvolume.host.mount.mounts import read_mount_table
from localvolume.host.syscalls import EXT_MAGIC, XFS_MAGIC, failed, fstatfs, mount_id, syscall
from localvolume.host.tree.entries import device_number

#: The highest project id there is; 0 stands for "in no project".
HIGHEST_PROJECT: Final = 0xFFFFFFFE

# linux/fs.h
_FS_XFLAG_PROJINHERIT = 0x200

# linux/dqblk_xfs.h. fs_disk_quota: version, kind, field mask, id; hard and soft limit of blocks,
# the same of inodes, blocks and inodes used; the rest is left as it is. Blocks are of 512 bytes.
_Q_XGETQUOTA, _Q_XSETQLIM, _Q_XGETQSTATV = 0x5803, 0x5804, 0x5808
_DQUOT = struct.Struct("=bbHIQQQQQQ56x")
_FS_DQUOT_VERSION, _FS_PROJ_QUOTA = 1, 2
_FS_DQ_BSOFT, _FS_DQ_BHARD = 4, 8
_SECTOR = 512
# fs_quota_statv: the version asked for, then the flags at byte 2
_STATV_BYTES = 160
_FS_QUOTA_PDQ_ACCT, _FS_QUOTA_PDQ_ENFD = 0x10, 0x20

# ext4 stores limits in units of 1 KiB, and xfs in blocks of at least that.
_LIMIT_UNIT = 1024

_NR_QUOTACTL_FD = 443  # Linux 5.14; the same on every architecture Kubernetes runs on
_PROJECTS = 2  # PRJQUOTA

# "Unknown call", as the kernel and as old seccomp profiles say it. The kernel also says the first
# of a filesystem without quota, and the second without privilege; the older call then says it too.
_TRY_OLDER = frozenset({errno.ENOSYS, errno.EPERM})

_libc = ctypes.CDLL(None, use_errno=True)


class ProjectUsage(NamedTuple):
    """What the kernel counts and allows; 0 is no limit. xfs rounds limits up to blocks."""

    used_bytes: int
    soft_bytes: int
    hard_bytes: int
    used_inodes: int


class Membership(NamedTuple):
    """The project of a file or directory, 0 for none, and whether new files in it inherit it."""

    project: int
    inherited: bool


def probe(fd: int) -> str | None:
    """Say why directories in ``fd`` cannot have a limit each; None if they can.

    ``fd`` is an open directory. Raises OSError when its filesystem does not even tell what it is.
    """
    magic = fstatfs(fd).magic
    if magic not in {EXT_MAGIC, XFS_MAGIC}:
        return (
            "only xfs and ext4 have project quotas, and this is another filesystem; backend image"
            " enforces sizes on any"
        )
    if not kernel_has_quotactl():
        return "this kernel was built without quotas"
    try:
        state = quotactl(fd, _Q_XGETQSTATV, 0, struct.pack("=b159x", 1))
        flags: int = struct.unpack_from("=H", state, 2)[0]
    except OSError as error:
        # What both filesystems say when no kind of quota is on, or the kernel has none for them.
        if error.errno not in {errno.ENOSYS, errno.EINVAL, errno.ESRCH}:
            return f"the kernel does not tell of its quotas: {error.strerror}"
        flags = 0
    if not flags & _FS_QUOTA_PDQ_ACCT:
        return f"project quotas are off; while nothing uses it, {_remedy(fd, magic)}"
    if not flags & _FS_QUOTA_PDQ_ENFD:
        return (
            "project quotas are counted here but not enforced; while nothing uses it,"
            f" {_remedy(fd, XFS_MAGIC)}"
        )
    try:
        attributes = read_attributes(fd)
        if attributes[0] & _FS_XFLAG_PROJINHERIT:
            # Directories could be made and limited elsewhere, but moving them here fails (EXDEV).
            return f"the directory is in project {attributes[3]} itself: only that one fits in it"
        read(fd, HIGHEST_PROJECT)
    except OSError as error:
        if error.errno == errno.EPERM:
            return "this process may not set quotas: it needs CAP_SYS_ADMIN"
        return f"quotas cannot be read here: {error.strerror}"
    return None


def _remedy(fd: int, magic: int) -> str:
    """The commands that switch project quotas on. They unmount first: tune2fs needs that, and xfs
    does not take prjquota in a remount."""
    place = os.readlink(f"/proc/self/fd/{fd}")
    mount = read_mount_table().holding(place)
    device, where = (mount.source, mount.mount_point) if mount else ("DEVICE", place)
    needed = "a kernel with xfs quotas"
    commands = [f"umount {where}", f"mount -o prjquota {device} {where}"]
    if magic == EXT_MAGIC:
        commands.insert(1, f"tune2fs -O project,quota -Q prjquota {device}")
        needed = "a kernel with quota format v2 (modprobe quota_v2)"
    return f"on the host: {'; '.join(commands)}; and prjquota in /etc/fstab. It needs {needed}"


def assign(fd: int, project: int) -> None:
    """Put an empty directory, and all that will be made in it, into a project.

    Raises OSError: ENOTEMPTY when something lies in it already, which would not be counted.
    """
    _refuse_no_project(project)
    flags, extent_size, extents, present, cow_extent_size = read_attributes(fd)
    if flags & _FS_XFLAG_PROJINHERIT and present == project:
        return
    with os.scandir(fd) as entries:
        if any(entries):
            raise OSError(errno.ENOTEMPTY, "what lies in the directory would not be counted")
    inherited = flags | _FS_XFLAG_PROJINHERIT
    write_attributes(fd, (inherited, extent_size, extents, project, cow_extent_size))


def membership(fd: int) -> Membership:
    """Return the project of a file or directory, and whether new files in it inherit it.

    Raises OSError: ENOTTY or EOPNOTSUPP if the filesystem has no projects.
    """
    flags, _, _, project, _ = read_attributes(fd)
    return Membership(project, bool(flags & _FS_XFLAG_PROJINHERIT))


def set_limits(fd: int, project: int, *, soft_bytes: int | None, hard_bytes: int | None) -> None:
    """Limit a project of the filesystem ``fd`` lies in, in bytes; 0 or None is no limit.

    Limits are rounded up to the units that the filesystem stores. Data beyond a new limit stays,
    but nothing can be added. Raises ValueError if soft exceeds hard (xfs would silently ignore
    that), OSError.
    """
    _refuse_no_project(project)
    soft, hard = (_sectors(limit or 0) for limit in (soft_bytes, hard_bytes))
    if hard and soft > hard:
        raise ValueError(f"the soft limit of {soft_bytes} bytes exceeds the hard one, {hard_bytes}")
    fields = _FS_DQ_BSOFT | _FS_DQ_BHARD
    wanted = (_FS_DQUOT_VERSION, _FS_PROJ_QUOTA, fields, project, hard, soft, 0, 0, 0, 0)
    quotactl(fd, _Q_XSETQLIM, project, _DQUOT.pack(*wanted))


def read(fd: int, project: int) -> ProjectUsage:
    """Return what a project holds and may hold; all zeros if the kernel knows nothing of it.

    Raises OSError: ESRCH or ENOSYS if project quotas are off.
    """
    _refuse_no_project(project)
    with contextlib.suppress(FileNotFoundError):
        answer = quotactl(fd, _Q_XGETQUOTA, project, bytes(_DQUOT.size))
        _, _, _, _, hard, soft, _, _, used, inodes = _DQUOT.unpack(answer)
        return ProjectUsage(used * _SECTOR, soft * _SECTOR, hard * _SECTOR, inodes)
    return ProjectUsage(0, 0, 0, 0)


def _refuse_no_project(project: int) -> None:
    """Refuse 0: it stands for no project, and on xfs its limits are the defaults of all others."""
    if not 0 < project <= HIGHEST_PROJECT:
        raise ValueError(f"not the id of a project: {project}")


def _sectors(limit: int) -> int:
    if limit < 0:
        raise ValueError(f"not a limit: {limit}")
    return -(-limit // _LIMIT_UNIT) * (_LIMIT_UNIT // _SECTOR)


def kernel_has_quotactl() -> bool:
    """Whether this kernel was built with quota calls at all."""
    # Without a device, a kernel that has the call answers ENODEV, any other ENOSYS.
    ctypes.set_errno(0)
    _libc.quotactl(ctypes.c_int(_command(0)), None, ctypes.c_int(0), None)
    return ctypes.get_errno() != errno.ENOSYS


def quotactl(fd: int, command: int, project: int, structure: bytes) -> bytes:
    """Run ``command`` on the project quota of the filesystem ``fd`` lies in, with quotactl_fd(2),
    or with quotactl(2) on older kernels.

    Use it only for the commands of linux/dqblk_xfs.h: the kernel answers them alike for xfs and
    for every filesystem of the generic quota layer (ext4).

    ``fd`` must be open for reading (not ``O_PATH``). ``structure`` is what the command takes;
    returns what the kernel made of it. Raises OSError: ENOSYS if neither call knows what to do,
    EPERM without CAP_SYS_ADMIN, ENOENT or ESRCH if there is no such quota.
    """
    buffer = ctypes.create_string_buffer(structure, len(structure))
    try:
        _by_descriptor(fd, command, project, buffer)
    except OSError as refused:
        if refused.errno not in _TRY_OLDER:
            raise
        if (device := _block_device(fd)) is None:
            raise
        _by_device(device, command, project, buffer)
    return buffer.raw


def _command(command: int) -> int:
    return command << 8 | _PROJECTS


def _by_descriptor(
    fd: int, command: int, project: int, buffer: ctypes.Array[ctypes.c_char]
) -> None:
    syscall(_NR_QUOTACTL_FD, None, fd, _command(command), project, buffer)


def _by_device(
    device: str, command: int, project: int, buffer: ctypes.Array[ctypes.c_char]
) -> None:
    if _libc.quotactl(
        ctypes.c_int(_command(command)),
        ctypes.c_char_p(os.fsencode(device)),
        ctypes.c_uint(project),
        buffer,
    ):
        raise failed(device)


def _block_device(fd: int) -> str | None:
    """The node of the block device that holds the filesystem of ``fd``, if it is visible here."""
    device = device_number(os.fstat(fd).st_dev)
    candidates = []
    if name := sysfs.uevent(sysfs.base_of(device)).get("DEVNAME"):
        candidates.append(f"/dev/{name}")
    with contextlib.suppress(OSError, ValueError):
        here = mount_id(fd)
        candidates += [mount.source for mount in read_mount_table() if mount.mount_id == here]
    return next((path for path in candidates if sysfs.block_number(path) == device), None)

"""Whether a pool's directory is on a mounted disk, as the mount table tells."""

import pytest

from localvolume.backends.pool.root import why_not_mounted
from localvolume.host.mount.mounts import MountTable, parse_mount_table


@pytest.mark.parametrize(
    ("lines", "path", "host_dir", "good"),
    [
        ("1 0 8:1 / / rw - ext4 x rw\n2 1 8:2 / /data rw - ext4 x rw", "/data", "/data", True),
        ("1 0 8:1 / / rw - ext4 x rw\n2 1 8:2 / /d rw - ext4 x rw", "/d/p", "/d/p", True),
        # Bound onto itself on the root filesystem: an administrator's word.
        ("1 0 8:1 / / rw - ext4 x rw\n2 1 8:1 /p /p rw - ext4 x rw", "/p", "/p", True),
        # In a container: everything is below a mount.
        ("1 0 0:5 / / rw - overlay x rw\n2 1 8:2 /p /p rw - ext4 x rw", "/p", "/d/p", True),
        ("1 0 0:5 / / rw - overlay x rw\n2 1 8:1 /d/p /p rw - ext4 x rw", "/p", "/d/p", False),
        ("1 0 0:5 / / rw - overlay x rw\n2 1 8:1 /@/d/p /p rw - btrfs x", "/p", "/d/p", False),
        ("1 0 0:5 / / rw - overlay x rw\n2 1 8:1 /d /m rw - ext4 x rw", "/m/p", "/d/p", False),
        ("1 0 0:5 / / rw - overlay x rw", "/p", "/p", False),
        ("2 1 8:2 / /other rw - ext4 x rw", "/p", "/p", False),
    ],
)
def test_a_pool_is_on_a_disk_as_the_mount_table_tells(
    lines: str, path: str, host_dir: str, good: bool
) -> None:
    text = "".join(
        f"{line} rw\n" if line.endswith("x") else f"{line}\n" for line in lines.split("\n")
    )
    found = why_not_mounted(MountTable(parse_mount_table(text.encode())), path, host_dir)
    assert (found is None) is good, found

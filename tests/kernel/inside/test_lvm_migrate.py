"""What docs/migrate has a reader do on a node with real logical volumes."""

import subprocess
from pathlib import Path

from tests.host.support_devices import command
from tests.pages import MIGRATE, blocks_of

from .support_lvm import DISKS, group_on


def test_what_elastics_driver_would_remove_is_listed(tmp_path: Path) -> None:
    """Before going back: volumes that it knows no PersistentVolume of, and the thin pool."""
    (listing,) = (
        one.text
        for one in blocks_of(MIGRATE / "elastic-local-volume.md")
        if "comm -23 - known" in one.text
    )
    with group_on(DISKS[0], "elastic-local-vg") as group:
        for name in ("pvc-known", "pvc-unknown", "somebodys"):
            command("lvcreate", "--quiet", "-an", "-Zn", "-n", name, "-L", "4m", group)
        (tmp_path / "known").write_text("pvc-gone\npvc-known\n")
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", listing],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.split() == ["pvc-unknown", "somebodys"]

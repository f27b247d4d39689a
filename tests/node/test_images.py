"""Images from this machine's files: the same each time."""

from pathlib import Path

import pytest

from localvolume_lab.controlplane.node import busybox_image

pytestmark = pytest.mark.needs("kubelet")


def test_the_same_files_make_the_same_bytes(tmp_path: Path) -> None:
    """So that a second import finds every layer there."""
    for name in ("one", "two"):
        busybox_image(tmp_path / name, "localvolume.test/busybox:1")
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()

"""What a machine has for a node is found out before one is started, and said in words."""

from pathlib import Path

import pytest

from localvolume_lab.controlplane.node import missing
from localvolume_lab.controlplane.node.cgroups import Layout, layout

V1 = """\
24 30 0:22 / /proc rw shared:13 - proc proc rw
31 30 0:27 / /sys/fs/cgroup rw shared:9 - tmpfs tmpfs rw,mode=755
32 31 0:28 / /sys/fs/cgroup/cpu,cpuacct rw shared:10 - cgroup cgroup rw,cpu,cpuacct
33 31 0:29 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
34 31 0:30 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
"""
V2 = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (
            V1,
            Layout(
                (
                    "/sys/fs/cgroup/cpu,cpuacct",
                    "/sys/fs/cgroup/memory",
                    "/sys/fs/cgroup/unified",
                ),
                unified=False,
            ),
        ),
        (V2, Layout(("/sys/fs/cgroup",), unified=True)),
    ],
    ids=["v1", "v2"],
)
def test_the_layout_of_control_groups_is_read(text: str, wanted: Layout, tmp_path: Path) -> None:
    table = tmp_path / "mountinfo"
    table.write_text(text)
    assert layout(str(table)) == wanted


@pytest.mark.needs("kubelet")
def test_absent_programs_are_told_with_their_packages(tmp_path: Path) -> None:
    told = missing(str(tmp_path))
    assert told is not None
    assert "install busybox-static containerd " in told


@pytest.mark.needs("kubelet")
def test_absent_plugins_are_told_with_their_package(tmp_path: Path) -> None:
    told = missing(plugin_places=[str(tmp_path)])
    assert told == "there are no CNI plugins: install containernetworking-plugins"

"""Entries of every kind and name: a volume is offered, anything else is said and stops nothing."""

import os
import socket
import subprocess
from pathlib import Path

import pytest

from tests.cluster.support_agent import Lab
from tests.host.support_devices import command, unmount
from tests.host.support_mounts import Mounts

pytestmark = pytest.mark.needs("root", "loop", "controlplane")

# Octal escapes in the mount table; what a shell, YAML or a format string might trip over.
NAMES = (
    "with space",
    "tab\tinside",
    "new\nline",
    "back\\slash",
    "back\\040slash",
    "grüße-日本-🗄",
    "-rf",
    "*",
    "#hash",
    "%s{}",
    "..hidden",
    ".dot",
    "n" * 255,
)


def test_names_of_all_kinds_go_the_whole_round(lab: Lab) -> None:
    fs = lab.add_class("fs")
    mounts = lab.stack.enter_context(Mounts())
    for name in NAMES:
        mounts.tmpfs(str(fs.path(name)))
    # No API object can say a name that is not UTF-8.
    mounts.tmpfs(os.fsdecode(os.fsencode(fs.directory) + b"/not\xffutf8"))
    lab.start()
    volumes = {name: lab.published(fs, name) for name in NAMES}
    lab.until(lambda: lab.logged("its name is not UTF-8"), bool)
    assert len(lab.volumes()) == len(NAMES)

    claims = {name: lab.bound(volumes[name]) for name in NAMES}
    for name in NAMES:
        fs.path(name).joinpath("secret\n").write_text("tenant")
        lab.delete_claim(claims[name])
    for name in NAMES:
        lab.published(fs, name, unlike=volumes[name]["metadata"]["uid"])
        assert os.listdir(fs.path(name)) == []


def test_what_is_no_volume_is_named_and_stops_nothing(lab: Lab) -> None:
    """Nothing of this is opened: a FIFO would block whoever opens it, and others forever after."""
    fs, block = lab.add_class("fs"), lab.add_class("block", volumeMode="Block")
    mounts = lab.stack.enter_context(Mounts())
    for cls in (fs, block):
        os.mkfifo(cls.path("fifo"))
        with socket.socket(socket.AF_UNIX) as listener:
            here = os.getcwd()
            os.chdir(cls.directory)  # an address of a socket is at most 107 bytes long
            try:
                listener.bind("socket")
            finally:
                os.chdir(here)
        cls.path("file").write_text("data")
        os.mknod(cls.path("character"), 0o600 | 0o020000, os.makedev(1, 3))
        cls.path("dangling").symlink_to("/nowhere/at/all")
        cls.path("loop-a").symlink_to("loop-b")
        cls.path("loop-b").symlink_to("loop-a")
        cls.path("plain").mkdir()
        cls.path("plain/precious").write_text("not on a disk of its own")
        mounts.tmpfs(str(cls.path("mounted")))
        cls.path("by-link").symlink_to(cls.path("mounted"))
    lab.link(lab.raw_disk(), block.path("raw"))
    lab.start()
    lab.published(fs, "mounted")
    lab.published(block, "raw")
    lab.settle()
    assert len(lab.volumes()) == 2

    def said(path: Path) -> list[str]:
        host = f"/host/{lab.unique}/{path.parent.name}/{path.name} is left alone: "
        return [line.partition(host)[2] for line in lab.log() if host in line]

    for cls in (fs, block):
        assert said(cls.path("fifo")) == ["it is a fifo"]
        assert said(cls.path("socket")) == ["it is a socket"]
        assert said(cls.path("file")) == ["it is a regular file"]
        assert said(cls.path("character")) == ["it is a character device"]
        for name in ("dangling", "loop-a", "loop-b"):
            assert said(cls.path(name)) == ["it is a link that leads nowhere"]
        # Upstream's words, which people look for.
        assert said(cls.path("plain")) == [f"{cls.path('plain')} is not a valid mount point"]
        assert said(cls.path("by-link")) == [f"{cls.path('by-link')} is not a valid mount point"]
        assert (cls.path("plain") / "precious").exists()
    assert said(block.path("mounted")) == ["it is a directory, and its class offers block devices"]
    lab.holds(fs, {"wrong-kind": 4, "gone": 5})
    # One stray file makes upstream's node not ready; it keeps nobody from being served.
    assert lab.http("/ready")[0] == 200


@pytest.mark.needs("ext4")
def test_entries_that_come_and_go_while_they_are_looked_at(lab: Lab) -> None:
    fs = lab.add_class("fs")
    steady = lab.mount(lab.disk(), fs.path("steady"))
    lab.start()
    before = lab.published(fs, "steady")
    mounts = lab.stack.enter_context(Mounts())
    other = fs.path("flapping")
    for _ in range(30):
        mounts.tmpfs(str(other))
        unmount(other)
        subprocess.run(["mv", other, fs.path("moved")], check=True)
        fs.path("moved").rmdir()
    mounts.tmpfs(str(other))
    lab.published(fs, "flapping")
    assert lab.published(fs, "steady") == before
    command("mountpoint", "-q", steady)

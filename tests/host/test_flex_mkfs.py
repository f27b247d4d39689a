"""What the table of mkfs options allows, the real mkfs takes."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from localvolume.config.mkfsoptions import mkfs_options
from localvolume.host.filesystem.xfsprogs import VERSION_COMMAND, for_older_kernels

EXT4 = (
    "-b 1024",
    "-b4096 -i 16384 -I 512",
    "-m 0.5",
    "-N 5000",
    "-O quota,project,^metadata_csum,^64bit",
    "-O none",
    "-O bigalloc",
    "-O casefold,encrypt,verity,stable_inodes,inline_data",
    "-O ea_inode,large_dir,metadata_csum_seed,mmp,fast_commit,orphan_file",
    "-O sparse_super2,meta_bg,^resize_inode,uninit_bg,^metadata_csum",
    "-T largefile4 -m 0",
    "-T news",
    "-E stride=16,stripe_width=64,lazy_itable_init=0,lazy_journal_init=1,nodiscard",
    "-E lazy_itable_init,stripe-width=32,discard -J size=8",
)
XFS = (
    "-b size=4k",
    "-d su=64k,sw=4 -l su=32k",
    "-d agcount=2 -K",
    "-i size=1024,maxpct=10,align=1,sparse=0,nrext64=1",
    "-l size=64m",
    "-m reflink=0,rmapbt=1,crc=1,finobt=1,bigtime=1,inobtcount=1",
    "-m crc=0",
    "-n size=8192,ftype=1 -s size=4096",
)
PROGRAMS = {"ext4": ("mkfs.ext4", "-q", "-F"), "xfs": ("mkfs.xfs", "-q", "-f")}
CASES = [
    pytest.param(fs, text, marks=pytest.mark.needs(fs))
    for fs, texts in (("ext4", EXT4), ("xfs", XFS))
    for text in texts
]


@pytest.mark.parametrize(("fs_type", "text"), CASES)
def test_mkfs_takes_it(fs_type: str, text: str, tmp_path: Path) -> None:
    image = tmp_path / "image"
    with image.open("wb") as file:
        file.truncate(2 << 30)
    words = mkfs_options(fs_type, text)
    ours = []
    if fs_type == "xfs":
        version = subprocess.run(VERSION_COMMAND, capture_output=True, text=True, check=True)
        ours = for_older_kernels(version.stdout, words)
    command = [*PROGRAMS[fs_type], *ours, *words, str(image)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr

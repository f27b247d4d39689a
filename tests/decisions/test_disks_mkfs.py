"""The command that makes a filesystem on a disk: never forced, and nothing is discarded."""

from localvolume.config.mkfsoptions import mkfs_options
from localvolume.disks.act import mkfs_command


def test_mkfs_is_never_forced_and_discards_nothing() -> None:
    for fs_type, text in (("ext4", "-E discard"), ("xfs", "-m crc=1"), ("xfs", "-K")):
        argv = mkfs_command(fs_type, "u", mkfs_options(fs_type, text), "/proc/self/fd/9")
        assert not {"-f", "-F", "-FF", "--force"} & set(argv)
        assert argv[-1] == "/proc/self/fd/9"
        extended = argv[argv.index("-E") + 1] if fs_type == "ext4" else "-K"
        assert extended.endswith("nodiscard") or argv.count("-K") == 1

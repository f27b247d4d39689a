"""What a FlexVolume class may say: its parameters, and which options of mkfs may pass."""

from __future__ import annotations

import re
from collections.abc import Mapping

import pytest

from localvolume.config.mkfsoptions import mkfs_options
from localvolume.flexvolume.plan.provision import Wish, on_removal, read_class
from localvolume.kube.objects import StorageClass


def read(
    parameters: Mapping[str, str] | None = None, mount_options: tuple[str, ...] = ()
) -> Wish | list[str]:
    return read_class(StorageClass(parameters=parameters or {}, mount_options=mount_options))


def problem(parameters: Mapping[str, str]) -> str:
    found = read(parameters)
    assert isinstance(found, list), found
    return "; ".join(found)


# --- mkfs options --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fs_type", "text", "words"),
    [
        ("ext4", "", ()),
        ("xfs", "   ", ()),
        ("ext4", "-i 65536", ("-i", "65536")),
        ("ext4", "-i65536  -m 1", ("-i", "65536", "-m", "1")),
        ("ext4", "-m 0.5", ("-m", "0.5")),
        ("ext4", "-O ^has_journal,quota", ("-O", "^has_journal,quota")),
        ("ext4", "-E lazy_itable_init,nodiscard", ("-E", "lazy_itable_init,nodiscard")),
        ("ext4", "-J size=8 -T news", ("-J", "size=8", "-T", "news")),
        ("xfs", "-K -d su=64k,sw=4", ("-K", "-d", "su=64k,sw=4")),
        ("xfs", "-m reflink=0 -i size=1k", ("-m", "reflink=0", "-i", "size=1k")),
    ],
)
def test_what_may_pass_becomes_arguments(fs_type: str, text: str, words: tuple[str, ...]) -> None:
    assert mkfs_options(fs_type, text) == words


@pytest.mark.parametrize(
    ("fs_type", "text", "why"),
    [
        # Other devices, files, journals and filesystems.
        ("ext4", "/dev/sda", "no option that ext4 may have"),
        ("ext4", "-i 65536 /dev/sda", "no option"),
        ("ext4", "-d /etc", "no option"),
        ("ext4", "-J device=/dev/sda", "must have size, not 'device'"),
        ("ext4", "-O journal_dev", "'journal_dev', which is not known or not allowed"),
        ("ext4", "-E root_owner=0:0", "must have discard"),
        ("ext4", "-E offset=4096", "not 'offset'"),
        ("ext4", "-U clear", "no option"),
        ("ext4", "-F", "no option"),
        ("ext4", "-n", "no option"),
        ("ext4", "--help", "no option"),
        ("xfs", "-d name=/dev/sda", "must have agcount, su, sw, not 'name'"),
        ("xfs", "-d file,name=/etc/passwd,size=1g", "not 'file'"),
        ("xfs", "-l logdev=/dev/sda", "not 'logdev'"),
        ("xfs", "-r rtdev=/dev/sda", "no option"),
        ("xfs", "-p /etc/passwd", "no option"),
        ("xfs", "-c options=/etc/x", "no option"),
        ("xfs", "-m uuid=0", "not 'uuid'"),
        ("xfs", "-f", "no option"),
        # No shell: what it would mean is only a wrong value.
        ("ext4", "-i '65536'", "must be a number from 1024"),
        ("ext4", "-i $(reboot)", "must be a number from 1024"),
        ("ext4", "-i 65536;reboot", "must be a number from 1024"),
        ("ext4", "-m \u0661", "must be a percentage"),
        ("ext4", "-i \u0661\u0660\u0662\u0664", "must be a number from 1024"),
        # Values.
        ("ext4", "-b 1000", "-b must be 1024 or 2048 or 4096"),
        ("ext4", "-b -1024", "-b must be 1024"),
        ("ext4", "-i 1023", "must be a number from 1024 to 67108864"),
        ("ext4", "-i 67108865", "must be a number"),
        ("ext4", "-i " + "9" * 400, "must be a number"),
        ("ext4", "-I 100", "-I must be 128"),
        ("ext4", "-m 51", "must be a percentage up to 50"),
        ("ext4", "-m -1", "must be a percentage"),
        ("ext4", "-N 0", "must be a number from 1"),
        ("ext4", "-O ^^quota", "not known"),
        ("ext4", "-O ,", "not known"),
        ("ext4", "-T floppies", "not known"),
        ("ext4", "-E stride", "stride must be a number"),
        ("ext4", "-E stride=1,stride=2", "has stride twice"),
        ("ext4", "-E nodiscard=1", "nodiscard takes no value"),
        ("ext4", "-E lazy_itable_init=2", "lazy_itable_init must be 0 or 1"),
        ("ext4", "-E strid=2", "did you mean stride?"),
        ("ext4", "-J size=0", "size must be a number from 1"),
        ("xfs", "-b size=3000", "must be a power of two"),
        ("xfs", "-b size=256", "from 512"),
        ("xfs", "-d su=64q", "su must be a size"),
        ("xfs", "-d sw=x", "sw must be a number"),
        ("xfs", "-m reflink=yes", "reflink must be 0 or 1"),
        ("xfs", "-m reflink", "reflink must be 0 or 1"),
        ("xfs", "-K=1", "-K takes no value"),
        # Form.
        ("ext4", "-i", "-i has no value"),
        ("ext4", "-i 1024 -i 2048", "-i is given twice"),
        ("ext4", "-", "no option"),
        ("ext4", "i 1024", "no option"),
        ("ext4", "-m 1 " * 101, "longer than 500 characters"),
        ("xfs", "-i 1024", "must have align"),
        ("btrfs", "-K", "mkfs.ext4 or mkfs.xfs, not of 'btrfs'"),
    ],
)
def test_what_may_not(fs_type: str, text: str, why: str) -> None:
    with pytest.raises(ValueError, match=re.escape(why)):
        mkfs_options(fs_type, text)


# --- parameters ----------------------------------------------------------------------------------


def test_a_class_without_parameters_leaves_all_to_the_agents() -> None:
    """elastic's had none."""
    assert read() == Wish()


def test_what_a_class_may_say() -> None:
    given = {"fsType": "xfs", "mkfsOptions": " -K   -m reflink=0 ", "onRemoval": "overwrite"}
    wish = Wish(
        fs_type="xfs",
        mkfs="-K -m reflink=0",
        on_removal="overwrite",
        mount_options=("noatime", "logbsize=64k"),
    )
    assert read(given, ("noatime", "logbsize=64k")) == wish
    assert read({"csi.storage.k8s.io/fstype": "ext4"}) == Wish(fs_type="ext4")
    both = {"csi.storage.k8s.io/fstype": "ext4", "fsType": "ext4", "mkfsOptions": ""}
    assert read(both) == Wish(fs_type="ext4")


@pytest.mark.parametrize("value", ["delete", "overwrite", "discard"])
def test_on_removal(value: str) -> None:
    assert on_removal(value) == value
    assert read({"onRemoval": value}) == Wish(on_removal=value)


@pytest.mark.parametrize(
    ("parameters", "why"),
    [
        ({"fstype": "ext4"}, "parameter fstype is not known; did you mean fsType?"),
        ({"OnRemoval": "delete"}, "did you mean onRemoval?"),
        ({"mkfsoptions": "-m 0", "fsType": "ext4"}, "did you mean mkfsOptions?"),
        ({"pool": "fast"}, "parameter pool is not known"),
        ({"": "x"}, "parameter '' is not known"),
        ({"fsType": "ext3"}, "parameter fsType: must be ext4 or xfs, not 'ext3'; did you mean"),
        ({"fsType": ""}, "must be ext4 or xfs, not ''"),
        ({"onRemoval": "overwite"}, "not 'overwite'; did you mean overwrite?"),
        ({"onRemoval": ""}, "must be delete or overwrite or discard"),
        ({"mkfsOptions": "-m 0"}, "parameter mkfsOptions needs fsType"),
        ({"mkfsOptions": "-m 0", "fsType": "xfs"}, "parameter mkfsOptions: -m must have"),
        ({"fsType": "xfs", "csi.storage.k8s.io/fstype": "ext4"}, "differ"),
        ({"a": "", "fsType": "x", "onRemoval": "y"}, "parameter a is not known; parameter fsType"),
    ],
)
def test_what_it_may_not(parameters: Mapping[str, str], why: str) -> None:
    assert why in problem(parameters)


@pytest.mark.parametrize("option", ["", "a b", "x;y", "a\nb", "\u00e9"])
def test_mount_options_are_words(option: str) -> None:
    found = read({}, ("noatime", option))
    assert isinstance(found, list)
    assert "is no mount option" in found[0]


@pytest.mark.parametrize("option", ["bind", "noatime,bind", "loop=/dev/loop0", "rshared"])
def test_a_class_asks_for_nothing_that_no_mount_would_take(option: str) -> None:
    """Its volumes would be made, and never mounted."""
    found = read({}, ("noatime", option))
    assert isinstance(found, list)
    assert "is no mount option that a volume may have" in found[0]
    assert read({}, ("noatime",) * 64) == Wish(mount_options=("noatime",) * 64)
    assert read({}, ("noatime",) * 65) == [
        "there are 65 mount options, and no more than 64 are taken"
    ]

"""From `blockCleanerCommand` to a cleaning method: every mapping, and what is refused."""

from __future__ import annotations

from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localvolume.cleaning.method import Method, MethodInvalid, choose_method

Mode = Literal["Filesystem", "Block"]
MODES: tuple[Mode, ...] = ("Filesystem", "Block")

FILES = Method("delete-files")
SIGNATURES = Method("reset-signatures")
DISCARD = Method("discard")


def zero(passes: int = 1) -> Method:
    return Method("zero", passes=passes)


def overwrite(passes: int) -> Method:
    return Method("overwrite", passes=passes)


def command(*words: str) -> Method:
    return Method("command", command=words)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("words", "method"),
    [
        (("/scripts/quick_reset.sh",), SIGNATURES),
        (("/scripts/quick_reset.sh", "ignored"), SIGNATURES),
        (("/scripts/dd_zero.sh",), zero()),
        (("/scripts/dd_zero.sh", "2"), zero(2)),
        (("/scripts/shred.sh",), overwrite(3)),
        (("/scripts/shred.sh", "2"), overwrite(2)),
        (("/scripts/shred.sh", "0"), zero()),
        (("/scripts/shred.sh", "000"), zero()),
        (("/scripts/blkdiscard.sh",), DISCARD),
        (("localvolume", "discard"), DISCARD),
        (("localvolume", "zero"), zero()),
        (("localvolume", "zero", "100"), zero(100)),
        (("localvolume", "overwrite"), overwrite(3)),
        (("localvolume", "overwrite", "1"), overwrite(1)),
        (("localvolume", "reset-signatures"), SIGNATURES),
        # Not upstream's own script: the administrator's, whatever its name.
        (("/opt/scripts/shred.sh", "2"), command("/opt/scripts/shred.sh", "2")),
        (("shred.sh",), command("shred.sh")),
        (("/scripts/sub/shred.sh",), command("/scripts/sub/shred.sh")),
        (("/scripts/common.sh",), command("/scripts/common.sh")),
        (("/scripts/my_wipe.sh", "-x"), command("/scripts/my_wipe.sh", "-x")),
        (("/bin/sh", "-c", "/scripts/shred.sh 2"), command("/bin/sh", "-c", "/scripts/shred.sh 2")),
        (("/usr/bin/localvolume", "zero"), command("/usr/bin/localvolume", "zero")),
    ],
)
def test_a_command_names_its_method_for_a_block_device(
    words: tuple[str, ...], method: Method, mode: Mode
) -> None:
    assert choose_method(words, volume_kind="block", volume_mode=mode) == method


def test_without_a_command_a_raw_device_is_zeroed() -> None:
    # Its next tenant would read the old blocks, which upstream's default leaves in place.
    assert choose_method(None, volume_kind="block", volume_mode="Block") == zero()


def test_without_a_command_a_device_under_a_filesystem_is_reset_as_upstream_does() -> None:
    assert choose_method(None, volume_kind="block", volume_mode="Filesystem") == SIGNATURES


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "words", [None, (), ("/scripts/shred.sh", "2"), ("/scripts/fsclean.sh",), ("rm", "-rf", "/")]
)
def test_a_filesystem_has_its_files_deleted_whatever_the_command(
    words: tuple[str, ...] | None, mode: Mode
) -> None:
    # As upstream: the block cleaner is never run for a directory.
    assert choose_method(words, volume_kind="filesystem", volume_mode=mode) == FILES


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "leave the key out"),
        (("",), "leave the key out"),
        (("/scripts/fsclean.sh",), "block device"),
        (("/scripts/dd_zero.sh", "0"), "passes from 1 to 100"),
        (("/scripts/dd_zero.sh", "many"), "'many'"),
        (("/scripts/shred.sh", "-1"), "'-1'"),
        (("/scripts/shred.sh", "101"), "from 1 to 100"),
        (("/scripts/shred.sh", "٣"), "one number"),
        (("localvolume",), "no method of localvolume"),
        (("localvolume", "shred"), "'shred' is no method"),
        (("localvolume", "delete-files"), "no method"),
        (("localvolume", "zero", "1", "2"), "one number"),
        (("localvolume", "overwrite", "0"), "from 1 to 100"),
        (("localvolume", "discard", "1"), "takes no argument"),
        (("localvolume", "reset-signatures", "x"), "takes no argument"),
    ],
)
def test_what_names_no_way_to_clean_is_refused_and_says_why(
    words: tuple[str, ...], message: str, mode: Mode
) -> None:
    with pytest.raises(MethodInvalid, match="blockCleanerCommand") as refused:
        choose_method(words, volume_kind="block", volume_mode=mode)
    assert message in str(refused.value)


@given(words=st.lists(st.text(), max_size=4).map(tuple), mode=st.sampled_from(MODES))
def test_a_block_device_never_gets_its_files_deleted(words: tuple[str, ...], mode: Mode) -> None:
    try:
        method = choose_method(words, volume_kind="block", volume_mode=mode)
    except MethodInvalid:
        return
    assert method.name != "delete-files"
    assert bool(method.command) == (method.name == "command")
    assert (method.passes > 0) == (method.name in ("zero", "overwrite"))


@pytest.mark.parametrize(
    ("method", "text"),
    [
        (FILES, "delete-files"),
        (DISCARD, "discard"),
        (zero(), "zero"),
        (zero(2), "zero x2"),
        (overwrite(1), "overwrite x1"),
        (SIGNATURES, "reset-signatures"),
        (command("/bin/wipe", "-f"), "/bin/wipe -f"),
    ],
)
def test_a_method_says_what_it_is(method: Method, text: str) -> None:
    assert str(method) == text

"""Which options of mkfs a class may ask for, and with which values: pure tables.

The tables list what is allowed: no option names a device, a file or another journal, and none gives
a filesystem the UUID of another. The result becomes arguments and never passes through a shell.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

from localvolume.config.syntax.readers import did_you_mean, quoted

Value = Callable[[str], None]
"""Raises ValueError, saying what a value must be."""

_MOST_CHARACTERS: Final = 500
_SIZE: Final = re.compile(r"([1-9][0-9]{0,14})([kKmMgG]?)")
_SCALE: Final = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


def mkfs_options(fs_type: str, text: str) -> tuple[str, ...]:
    """The arguments for mkfs.`fs_type` (ext4 or xfs) that a text asks for; () if it is empty.

    Options are written `-i 65536` or `-i65536`, separated by spaces. Raises ValueError, saying what
    is wrong, for anything that is not allowed.
    """
    table = _TABLES.get(fs_type)
    if table is None:
        raise ValueError(f"must be options of mkfs.ext4 or mkfs.xfs, not of {quoted(fs_type)}")
    if len(text) > _MOST_CHARACTERS:
        raise ValueError(f"is longer than {_MOST_CHARACTERS} characters")
    words, found = text.split(), dict[str, tuple[str, ...]]()
    while words:
        word = words.pop(0)
        flag, value = word[:2], word[2:]
        if flag not in table:
            known = ", ".join(sorted(table))
            raise ValueError(f"{quoted(word)} is no option that {fs_type} may have ({known})")
        if flag in found:
            raise ValueError(f"{flag} is given twice")
        check = table[flag]
        if check is None:
            if value:
                raise ValueError(f"{flag} takes no value, and has {quoted(value)}")
            found[flag] = (flag,)
            continue
        if not value and not words:
            raise ValueError(f"{flag} has no value")
        value = value or words.pop(0)
        try:
            check(value)
        except ValueError as error:
            raise ValueError(f"{flag} {error}") from error
        found[flag] = (flag, value)
    return tuple(word for pair in found.values() for word in pair)


# --- values ------------------------------------------------------------------------------------


def _number(least: int, most: int) -> Value:
    def check(value: str) -> None:
        digits = value.isascii() and value.isdigit() and len(value) <= len(str(most))
        if not digits or not least <= int(value) <= most:
            raise ValueError(f"must be a number from {least} to {most}, not {quoted(value)}")

    return check


def _bytes(least: int, most: int, *, power: bool = False) -> Value:
    """A size, as 65536 or 64k; `power`: a power of two."""

    def check(value: str) -> None:
        match = _SIZE.fullmatch(value)
        size = int(match[1]) * _SCALE[match[2].lower()] if match else 0
        if not least <= size <= most or (power and size & (size - 1)):
            what = "a power of two" if power else "a size"
            raise ValueError(f"must be {what} from {least} to {most}, not {quoted(value)}")

    return check


def _one_of(*choices: str) -> Value:
    def check(value: str) -> None:
        if value not in choices:
            hint = did_you_mean(value, choices)
            raise ValueError(f"must be {' or '.join(choices)}, not {quoted(value)}{hint}")

    return check


def _percent(most: int) -> Value:
    def check(value: str) -> None:
        if not re.fullmatch(r"[0-9]{1,3}(\.[0-9]{1,3})?", value) or float(value) > most:
            raise ValueError(f"must be a percentage up to {most}, not {quoted(value)}")

    return check


def _pairs(keys: Mapping[str, Value], bare: frozenset[str] = frozenset()) -> Value:
    """`key=value`, separated by commas; `bare` ones may be given without a value."""

    def check(value: str) -> None:
        seen = set()
        for pair in value.split(","):
            key, equals, rest = pair.partition("=")
            if key not in keys:
                text = f"must have {', '.join(sorted(keys))}, not {quoted(key)}"
                raise ValueError(f"{text}{did_you_mean(key, keys)}")
            if key in seen:
                raise ValueError(f"has {key} twice")
            seen.add(key)
            if not equals and key in bare:
                continue
            if equals and keys[key] is _NOTHING:
                raise ValueError(f"{key} takes no value")
            try:
                keys[key](rest)
            except ValueError as error:
                raise ValueError(f"{key} {error}") from error

    return check


def _words(*known: str, negated: bool = False) -> Value:
    """Known words, separated by commas; `negated`: each also with ^ before it."""

    def check(value: str) -> None:
        for word in value.split(","):
            plain = word.removeprefix("^") if negated else word
            if plain not in known:
                raise ValueError(f"has {quoted(word)}, which is not known or not allowed here")

    return check


def _nothing(value: str) -> None:
    raise ValueError(f"takes no value, and has {quoted(value)}")


_NOTHING: Final = _nothing
_BIT: Final = _one_of("0", "1")

# --- mke2fs(8) ---------------------------------------------------------------------------------

# Without journal_dev, which makes a journal for other filesystems and not a filesystem.
_EXT4_FEATURES: Final = (
    *("64bit", "bigalloc", "casefold", "dir_index", "dir_nlink", "ea_inode", "encrypt"),
    *("ext_attr", "extent", "extents", "extra_isize", "fast_commit", "filetype", "flex_bg"),
    *("has_journal", "huge_file", "inline_data", "large_dir", "large_file", "meta_bg"),
    *("metadata_csum", "metadata_csum_seed", "mmp", "orphan_file", "project", "quota"),
    *("resize_inode", "sparse_super", "sparse_super2", "stable_inodes", "uninit_bg", "verity"),
)
_EXT4_EXTENDED: Final[Mapping[str, Value]] = {
    "stride": _number(1, 1 << 31),
    "stripe_width": _number(1, 1 << 31),
    "stripe-width": _number(1, 1 << 31),
    "lazy_itable_init": _BIT,
    "lazy_journal_init": _BIT,
    "discard": _NOTHING,
    "nodiscard": _NOTHING,
}
_EXT4_ALONE: Final = frozenset({"lazy_itable_init", "lazy_journal_init", "discard", "nodiscard"})
_EXT4: Final[Mapping[str, Value | None]] = {
    "-b": _one_of("1024", "2048", "4096"),
    "-i": _number(1024, 1 << 26),
    "-I": _one_of("128", "256", "512", "1024", "2048", "4096"),
    "-m": _percent(50),
    "-N": _number(1, (1 << 32) - 1),
    "-O": _words(*_EXT4_FEATURES, "none", negated=True),
    "-T": _words("default", "small", "big", "huge", "news", "largefile", "largefile4"),
    "-E": _pairs(_EXT4_EXTENDED, _EXT4_ALONE),
    "-J": _pairs({"size": _number(1, 10_240_000)}),
}

# --- mkfs.xfs(8) -------------------------------------------------------------------------------

_STRIPE: Final = _bytes(512, 1 << 30)
_XFS: Final[Mapping[str, Value | None]] = {
    "-b": _pairs({"size": _bytes(512, 65536, power=True)}),
    "-d": _pairs({"su": _STRIPE, "sw": _number(1, 65536), "agcount": _number(1, 1_000_000)}),
    "-i": _pairs(
        {
            "size": _bytes(256, 2048, power=True),
            "maxpct": _number(0, 100),
            "align": _BIT,
            "sparse": _BIT,
            "nrext64": _BIT,
        }
    ),
    "-l": _pairs({"size": _bytes(1 << 20, 1 << 31), "su": _STRIPE}),
    "-m": _pairs(
        dict.fromkeys(("crc", "finobt", "reflink", "rmapbt", "bigtime", "inobtcount"), _BIT)
    ),
    "-n": _pairs({"size": _bytes(512, 65536, power=True), "ftype": _BIT}),
    "-s": _pairs({"size": _bytes(512, 32768, power=True)}),
    "-K": None,
}

_TABLES: Final[Mapping[str, Mapping[str, Value | None]]] = {"ext4": _EXT4, "xfs": _XFS}

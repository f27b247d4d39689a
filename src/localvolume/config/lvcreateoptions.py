"""Which further options a configuration may give lvcreate: those that change nothing we rely on.

LVM takes shortened names of long options, and values after `=`, joined to a letter, or as the next
word. So anything but a known option, spelled out in full, is refused, whatever it may mean.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from localvolume.config.syntax.readers import did_you_mean, quoted

# Each option with the values that it may have; all of these take one.
_TAKEN: Final = {
    "--alloc": re.compile("contiguous|cling|cling_by_tags|normal|anywhere|inherit"),
    "--autobackup": re.compile("y|n"),
    "--contiguous": re.compile("y|n"),
    "--readahead": re.compile("auto|none|[0-9]{1,9}[bBsSkKmM]?"),
}
_WITHOUT_VALUE: Final = frozenset({"--noudevsync", "--yes"})
_SHORT: Final = {"-A": "--autobackup", "-C": "--contiguous", "-r": "--readahead", "-y": "--yes"}

_OTHERS: Final = {
    "the name": "-n --name --lv",
    "the size": "-L --size -l --extents -V --virtualsize --poolmetadatasize",
    "the tags": "--addtag",
    "the activation": "-a --activate -k --setactivationskip -K --ignoreactivationskip "
    "--setautoactivation -p --permission -M --persistent -j --major --minor",
    "the kind of volume": "--type -T --thin --thinpool -s --snapshot -m --mirrors --mirrorlog "
    "-R --regionsize --nosync -H --cache --cachepool --cachevol --cachedevice --cachesize "
    "--vdo --vdopool --compression --deduplication --raidintegrity --originname --integrity",
    "the thin pool": "-c --chunksize --discards --errorwhenfull --poolmetadataspare",
    "the zeroing and wiping": "-Z --zero -W --wipesignatures",
    "which LVM is meant": "--config --devices --devicesfile --profile --metadataprofile "
    "--commandprofile --lockopt --nolocking --driverloaded --reportformat -t --test",
}
_STRIPES: Final = "-i --stripes -I --stripesize"
_WHY: Final = {
    **{option: what for what, options in _OTHERS.items() for option in options.split()},
    **dict.fromkeys(_STRIPES.split(), "the stripes, for which there are keys of their own"),
}


def fault_of_options(words: Sequence[str]) -> str | None:
    """Which of these words must not be given to lvcreate, and why; None if all of them may."""
    left = list(words)
    while left:
        word = left.pop(0)
        option, value = _split(word)
        if option in _WHY:
            return f"{quoted(word)} would decide {_WHY[option]}"
        if option in _WITHOUT_VALUE and value is None:
            continue
        if option not in _TAKEN:
            known = (*_TAKEN, *_WITHOUT_VALUE)
            hint = did_you_mean(option, known)
            return f"{quoted(word)} is none of the options that are taken: {', '.join(known)}{hint}"
        if value is None:
            value = left.pop(0) if left else ""
        if not _TAKEN[option].fullmatch(value):
            return f"{option} cannot be {quoted(value)}"
    return None


def allocation_of(words: Sequence[str]) -> str:
    """The allocation policy that these options, all of them allowed, name; "" for the group's."""
    values: dict[str, str] = {}
    left = list(words)
    while left:
        option, value = _split(left.pop(0))
        if option in _TAKEN:
            values[option] = left.pop(0) if value is None and left else value or ""
    # --alloc counts if both are given.
    contiguous = "contiguous" if values.get("--contiguous") == "y" else ""
    policy = values.get("--alloc", contiguous)
    return "" if policy == "inherit" else policy


def _split(word: str) -> tuple[str, str | None]:
    """The option, by its long name if it is a known letter, and the value in the same word."""
    if word.startswith("--"):
        option, equals, value = word.partition("=")
        return option, value if equals else None
    if re.match("-[A-Za-z]", word):
        letter, value = word[:2], word[2:]
        return _SHORT.get(letter, letter), value or None
    return word, None


__all__ = ["allocation_of", "fault_of_options"]

"""Discovery directories: what may be one, and which may be used side by side.

Everything below a discovery directory is published and, in the end, cleaned. A directory inside
another is refused, as one class could clean what holds the other's volumes. Two classes may share
the same directory, as in upstream; their namePatterns tell their volumes apart.
"""

import itertools
import posixpath
from collections.abc import Iterable
from typing import NamedTuple

from yaml.nodes import Node

from localvolume.config.syntax import globs
from localvolume.config.syntax.readers import Place, quoted, text

_LONGEST = 4095


def clean_directory(path: str) -> str:
    """The path without trailing or doubled slashes or "." parts. Raises ValueError, saying why."""
    if not path.startswith("/"):
        raise ValueError(f"must be an absolute path, not {quoted(path)}")
    if ".." in path.split("/"):
        raise ValueError(f'must not hold "..": {quoted(path)}')
    if "\0" in path or len(path.encode(errors="surrogatepass")) > _LONGEST:
        raise ValueError("is no path: it holds a NUL character or is too long")
    if (clean := "/" + posixpath.normpath(path).lstrip("/")) == "/":
        raise ValueError("must not be the root directory")
    return clean


def directory(node: Node, place: Place) -> str | None:
    """An absolute path, without trailing or doubled slashes or "." parts."""
    path = text(node, place)
    if path is None:
        return None
    try:
        return clean_directory(path)
    except ValueError as error:
        place.problem(str(error))
        return None


class Claim(NamedTuple):
    """What a class claims, as far as it could be read; None for a value known to be wrong."""

    name: str
    host_dir: str | None
    mount_dir: str | None
    name_pattern: str | None
    place: Place


def check_overlaps(claims: Iterable[Claim]) -> None:
    """Note, at the later class, every pair whose directories must not be used side by side."""
    for first, second in itertools.combinations(claims, 2):
        place = second.place
        _nested("hostDir", first.name, first.host_dir, second.host_dir, place)
        _nested("mountDir", first.name, first.mount_dir, second.mount_dir, place)
        if first.host_dir is None or second.host_dir is None:
            continue
        if first.host_dir == second.host_dir:
            if shared := _shared(first, second):
                place.at("namePattern").warning(
                    f"{shared}, and both look in {second.host_dir}: "
                    "which of the two publishes an entry that both mean is not certain"
                )
        elif first.mount_dir is not None and first.mount_dir == second.mount_dir:
            place.at("mountDir").problem(
                f"{second.mount_dir} is the mountDir of class {first.name} as well, "
                f"whose hostDir is another ({first.host_dir})"
            )


def _nested(key: str, other: str, one: str | None, two: str | None, place: Place) -> None:
    if one is None or two is None:
        return
    for inner, outer, how in ((two, one, "lies inside"), (one, two, "contains")):
        if inner.startswith(outer + "/"):
            place.at(key).problem(f"{two} {how} {one}, the {key} of class {other}")


def _shared(first: Claim, second: Claim) -> str:
    """Which two patterns may match the same name, in words; "" if there are none."""
    if first.name_pattern is None or second.name_pattern is None:
        return ""
    for one in first.name_pattern.split(","):
        for two in second.name_pattern.split(","):
            if globs.may_both_match(one, two):
                return f"{quoted(two)} and {quoted(one)} of class {first.name} match common names"
    return ""

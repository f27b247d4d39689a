"""Makes a Configuration from files: one file for each key, joined as upstream joins them.

The kubelet shows a ConfigMap as a directory whose files are links through `..data`, and changes
all of them at once by replacing that link. Reading across such a change would mix two
configurations, so the directory is read again.
"""

import os
import stat
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO

from yaml.nodes import MappingNode, Node, SequenceNode

from localvolume.config import schema
from localvolume.config.model import Configuration, ConfigurationInvalid, Problem
from localvolume.config.syntax import document
from localvolume.config.syntax.keytable import read_keys
from localvolume.config.syntax.readers import Place, one_line

_DATA = "..data"
_TRIES = 5
# The API server takes no ConfigMap above 1 MiB; this leaves room and bounds the memory.
_LARGEST_BYTES = 4 * 2**20


ReadFile = Callable[[str], str | tuple[str]]
"""Takes a path; returns the text of the file, or in a tuple the reason why there is none."""


@dataclass(frozen=True, slots=True)
class Source:
    """One key as it was given: `file` names where, `key` is the top level key."""

    file: str
    key: str
    text: str


def read_file(path: str) -> str | tuple[str]:
    """The text of a file, or in a tuple the reason why there is none."""
    try:
        # O_NONBLOCK, as opening a FIFO would wait for its writer; only regular files are read.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                return ("is not a regular file",)
            return read_text(file)
    except OSError as error:
        return (f"cannot be read: {error.strerror}",)


def read_text(file: BinaryIO) -> str | tuple[str]:
    """The rest of an open file as text, or in a tuple the reason why there is none.

    Raises OSError.
    """
    content = file.read(_LARGEST_BYTES + 1)
    if len(content) > _LARGEST_BYTES:
        return (f"is larger than {_LARGEST_BYTES // 2**20} MiB",)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        return (f"is not UTF-8: byte {error.start + 1} is wrong",)


def load(
    directory: str,
    *,
    host_checks: bool = True,
    has_image: bool = True,
    read: ReadFile = read_file,
) -> Configuration:
    """Read a ConfigMap directory. Raises ConfigurationInvalid with every problem.

    `host_checks` also looks for the executables that the configuration names. `has_image` False:
    the agent's environment names no image for Jobs, so a configuration that asks for them is wrong.
    """
    for _ in range(_TRIES):
        before = generation(directory)
        sources, problems = read_directory(directory, read=read)
        if before == generation(directory):
            return build(sources, problems, host_checks=host_checks, has_image=has_image)
    raise ConfigurationInvalid([Problem(directory, "", "changes faster than it can be read")])


def read_directory(
    directory: str, prefix: str = "", *, read: ReadFile = read_file
) -> tuple[list[Source], list[Problem]]:
    """The files of a directory that are keys: no directories, no dotfiles, so no `..data`.

    A source's `file` is `prefix` and the name in the directory.
    """
    try:
        listed = sorted(os.listdir(directory))
    except OSError as error:
        return [], [Problem(directory, "", f"the directory cannot be read: {error.strerror}")]
    sources: list[Source] = []
    problems: list[Problem] = []
    for name in listed:
        path = os.path.join(directory, name)
        if name.startswith(".") or os.path.isdir(path):
            continue
        shown = prefix + one_line(name)
        content = read(path)
        if isinstance(content, str):
            sources.append(Source(shown, name, content))
        else:
            problems.append(Problem(shown, "", content[0]))
    return sources, problems


def build(
    sources: Sequence[Source],
    problems: Iterable[Problem] = (),
    *,
    host_checks: bool = True,
    has_image: bool = True,
) -> Configuration:
    """Join the sources to one configuration. Raises ConfigurationInvalid with every problem.

    `problems` are those found before; they make the configuration invalid as well.
    """
    found = list(problems)
    warnings: list[Problem] = []
    parsed = _parse(_without_twins(sources, found), found)
    values: dict[str, object] = {}
    table = schema.top_keys(host_checks=host_checks)
    for source, node in parsed:
        place = Place(source.file, "", found, warnings)
        read = read_keys(_document(source.key, node), place, table, schema.belongs_elsewhere)
        values.update(read.values)
    files = {source.key.casefold(): source.file for source, _ in parsed}
    found += schema.check_together(values, files, has_image=has_image)
    # What cannot be read may have classes and pools.
    if not found and not any(
        values.get(field) for field in ("storage_classes", "pools", "flexvolume")
    ):
        warnings.append(Problem("", "storageClassMap", "names no class: nothing will be published"))
    found.sort()
    warnings.sort()
    if found:
        raise ConfigurationInvalid(found, warnings)
    return Configuration(**values, warnings=tuple(warnings))  # type: ignore[arg-type]  # by field


def _without_twins(sources: Sequence[Source], problems: list[Problem]) -> list[Source]:
    """Each key once; a key that is given twice is a problem that names both files."""
    by_key: dict[str, list[Source]] = {}
    for source in sources:
        by_key.setdefault(source.key.casefold(), []).append(source)
    for twins in by_key.values():
        if len(twins) > 1:
            files = list(dict.fromkeys(twin.file for twin in twins))
            where = " and ".join(files) if len(files) > 1 else f"{files[0]}, twice"
            problems.append(Problem(", ".join(files), twins[0].key, f"is given in {where}"))
    return [twins[0] for twins in by_key.values()]


def _parse(sources: Iterable[Source], problems: list[Problem]) -> list[tuple[Source, Node]]:
    parsed: list[tuple[Source, Node]] = []
    for source in sources:
        try:
            node = document.compose(source.text)
        except document.Unreadable as error:
            # A key's own file is named like it; a manifest has several.
            key = "" if os.path.basename(source.file) == source.key else source.key
            problems.append(Problem(source.file, key, str(error)))
            continue
        # A key without a value gets upstream's default, but it must still be a known key.
        parsed.append((source, document.null() if node is None else node))
    return parsed


def _document(key: str, node: Node) -> MappingNode:
    """The one-key document that a file stands for."""
    return document.mapping([(key, node)])


def manifest_sources(file: str, text: str, known: Collection[str]) -> list[Source] | None:
    """The keys of ConfigMap manifests in a file; None if it holds no manifest.

    Other kinds beside a ConfigMap, as in rendered charts, are skipped. So are ConfigMaps without a
    `known` key if others have one: a chart renders its dashboard into one. Raises
    document.Unreadable.
    """
    manifests = [one for node in document.compose_all(text) for one in _manifests(node)]
    if not manifests:
        return None
    maps = [_keys(file, one) for one in manifests if str(one["kind"].value) == "ConfigMap"]
    ours = [one for one in maps if any(source.key in known for source in one)]
    return [source for one in ours or maps for source in one]


def _manifests(node: Node) -> Iterator[dict[str, Node]]:
    """The fields of a manifest, or of each item of a List, as kubectl prints several."""
    fields = _plain_fields(node)
    if not ({"apiVersion", "kind"} <= fields.keys()):
        return
    items = fields.get("items")
    if str(fields["kind"].value).endswith("List") and isinstance(items, SequenceNode):
        for item in items.value:
            yield from _manifests(item)
    else:
        yield fields


def _keys(file: str, manifest: dict[str, Node]) -> list[Source]:
    """The keys of one ConfigMap. Raises document.Unreadable."""
    found: list[Source] = []
    data = manifest.get("data")
    if isinstance(data, MappingNode):
        for key, value in data.value:
            if value.tag != document.STRING:
                raise document.Unreadable(f'has data.{key.value} that is not text: use "|"')
            found.append(Source(file, str(key.value), str(value.value)))
    return found


def _plain_fields(node: Node) -> dict[str, Node]:
    if not isinstance(node, MappingNode):
        return {}
    return {str(key.value): value for key, value in node.value}


def generation(directory: str) -> str:
    """Which of the kubelet's snapshots is shown; "" if the directory is a plain one."""
    try:
        return os.readlink(os.path.join(directory, _DATA))
    except OSError:
        return ""

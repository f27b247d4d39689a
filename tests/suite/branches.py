"""Which branches a run met: the table by package, and what is missing where 95 % are asked for.

A branch is a way from one line to the next, where there are several. What no test can meet is an
exception, named with its reason in tests/uncovered.toml.
"""

import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

#: Packages of which so many of the branches must be met or be exceptions.
HELD = ("static", "dynamic", "backends", "cleaning", "flexvolume", "disks", "controller")
ENOUGH = 0.95
_SOURCE = "src/localvolume/"


@dataclass(frozen=True)
class Exempt:
    """The branches of a line, in a function of a module, that need not be met.

    `function` is named as "Class.method", and is "" for the module's own lines. `line` is the text
    of the line that branches, so that it is still found when others move it.
    """

    module: str
    function: str
    line: str
    reason: str


@dataclass(frozen=True)
class Missed:
    """A way that no test took, as (line, next line); the next is negative for leaving."""

    path: str
    function: str
    number: int
    line: str
    to: int

    def __str__(self) -> str:
        where = f" in {self.function}" if self.function else ""
        to = f"line {self.to}" if self.to > 0 else "its end"
        return f"{self.path}:{self.number}{where}: {self.line} -> {to}"


@dataclass(frozen=True)
class Package:
    """What a package has, and how much of it was met; `exempt` of its branches need not be."""

    name: str
    statements: int
    statements_met: int
    branches: int
    met: int
    exempt: int

    @property
    def share(self) -> float:
        """Of the branches that are met, or need not be."""
        return (self.met + self.exempt) / self.branches if self.branches else 1.0

    @property
    def enough(self) -> bool:
        return self.name not in HELD or self.share >= ENOUGH


@dataclass(frozen=True)
class Findings:
    """`stale` says of each exception that is none any more, or names nothing, why."""

    packages: Sequence[Package]
    missed: Sequence[Missed]
    stale: Sequence[str]

    @property
    def enough(self) -> bool:
        return not self.stale and all(package.enough for package in self.packages)


def read(path: Path) -> list[Exempt]:
    """The exceptions of a file; raises ValueError where one lacks something or has too much."""
    with path.open("rb") as file:
        listed = tomllib.load(file).get("uncovered", [])
    wanted = {"module", "function", "line", "reason"}
    for one in listed:
        if one.keys() != wanted or not all(isinstance(text, str) for text in one.values()):
            raise ValueError(f"an exception has {', '.join(sorted(wanted))}, and not: {one}")
        if not one["reason"].strip():
            raise ValueError(f"an exception names its reason: {one}")
    return [Exempt(**one) for one in listed]


def package_of(path: str) -> str:
    """The part of localvolume that a module is in: "disks"; "" for its own modules."""
    inner = path.partition(_SOURCE)[2]
    return inner.partition("/")[0] if "/" in inner else ""


def module_of(path: str) -> str:
    """As it is imported: "localvolume.disks.plan.plan"."""
    inner = path.removeprefix("src/").removesuffix(".py").removesuffix("/__init__")
    return inner.replace("/", ".")


def missed(files: Mapping[str, Any], source: Callable[[str], Sequence[str]]) -> list[Missed]:
    """All branches that were not met. `files` are those of coverage.py's JSON report, by path from
    the root of the repository; `source` gives a file's lines."""
    found = []
    for path, file in sorted(files.items()):
        lines = source(path)
        for function, part in file["functions"].items():
            for number, to in part["missing_branches"]:
                found.append(Missed(path, function, number, lines[number - 1].strip(), to))
    return sorted(found, key=lambda one: (one.path, one.number, one.to))


def judge(
    files: Mapping[str, Any],
    source: Callable[[str], Sequence[str]],
    exceptions: Sequence[Exempt],
) -> Findings:
    """What the report says of each package, with the exceptions taken into account."""
    ways = missed(files, source)
    named = {_key(one.module, one.function, one.line) for one in exceptions}
    left = [way for way in ways if _key_of(way) not in named]
    exempt = [way for way in ways if _key_of(way) in named]
    packages = {package_of(path) for path in files}
    return Findings(
        [_package(name, files, exempt) for name in sorted(packages)],
        left,
        _stale(exceptions, exempt),
    )


def _key(module: str, function: str, line: str) -> tuple[str, str, str]:
    return (module, function, line.strip())


def _key_of(way: Missed) -> tuple[str, str, str]:
    return _key(module_of(way.path), way.function, way.line)


def _package(name: str, files: Mapping[str, Any], exempt: Iterable[Missed]) -> Package:
    sums = [file["summary"] for path, file in files.items() if package_of(path) == name]
    return Package(
        name,
        sum(one["num_statements"] for one in sums),
        sum(one["covered_lines"] for one in sums),
        sum(one["num_branches"] for one in sums),
        sum(one["covered_branches"] for one in sums),
        sum(package_of(way.path) == name for way in exempt),
    )


def _stale(exceptions: Sequence[Exempt], exempt: Iterable[Missed]) -> list[str]:
    needed = {_key_of(way) for way in exempt}
    told = []
    for number, one in enumerate(exceptions):
        key = _key(one.module, one.function, one.line)
        where = f"{one.module}, {one.function or 'the module itself'}: {one.line}"
        if key not in needed:
            told.append(f"no branch is missed there: {where}")
        elif any(_key(o.module, o.function, o.line) == key for o in exceptions[:number]):
            told.append(f"named twice: {where}")
    return told


def unfounded(
    exceptions: Iterable[Exempt], source: Callable[[str], Sequence[str] | None]
) -> list[str]:
    """The exceptions whose module or line is not there, whatever a run met; `source` gives a
    module's lines."""
    told = []
    for one in exceptions:
        lines = source(one.module)
        if lines is None:
            told.append(f"there is no module {one.module}")
        elif one.line.strip() not in (line.strip() for line in lines):
            told.append(f"there is no such line in {one.module}: {one.line}")
    return told


def table(findings: Findings) -> str:
    """Lines of text: each package, and how the held ones stand to what is asked for."""
    lines = [f"{'package':<14}{'statements':>20}{'branches':>19}{'exempt':>8}{'share':>8}"]
    for one in findings.packages:
        statements = f"{one.statements_met} of {one.statements}"
        branches = f"{one.met} of {one.branches}"
        # Rounded down, so that what is too little never looks like enough.
        share = f"{int(one.share * 1000) / 10:.1f} %"
        verdict = "" if one.enough else f"  below {ENOUGH:.0%}"
        if one.name in HELD and one.enough:
            verdict = "  enough"
        name = one.name or "(top)"
        lines.append(f"{name:<14}{statements:>20}{branches:>19}{one.exempt:>8}{share:>8}{verdict}")
    lines += [f"exception to remove: {one}" for one in findings.stale]
    return "\n".join(lines)

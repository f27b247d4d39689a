"""`localvolume check-config FILE...`: whether a configuration would be taken, and if not, why.

A FILE is a file of the ConfigMap's directory (its name is the key), such a directory, or a manifest
that holds ConfigMaps. Several are joined as one directory would be. Exit status: 0 good (warnings
or not), 1 problems, 2 wrong usage.
"""

import argparse
import json
import os
import sys
from typing import Any

from localvolume.config import document, loading
from localvolume.config.model import ConfigurationInvalid, Problem


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Check a configuration as the agent would. A FILE is a key's file (its name is the key), "
        "a directory of such files, or a manifest with ConfigMaps; several are joined to one "
        "configuration."
    )
    parser.epilog = "Exit status: 0 good, 1 problems, 2 wrong usage."
    parser.add_argument("files", metavar="FILE", nargs="+")
    parser.add_argument(
        "--no-host-checks",
        action="store_true",
        help="do not look for executables on this machine: they may be in the image",
    )
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text")


def run(args: argparse.Namespace) -> int:
    """Print what is wrong; 0 good, 1 problems, 2 where a file is not there."""
    missing = [path for path in args.files if not os.path.exists(path)]
    if missing:
        for path in missing:
            print(f"localvolume check-config: there is no {path}", file=sys.stderr)
        return 2
    sources: list[loading.Source] = []
    problems: list[Problem] = []
    for path in args.files:
        more, wrong = _gather(path)
        sources += more
        problems += wrong
    warnings: tuple[Problem, ...] | list[Problem]
    classes: list[str] = []
    try:
        configuration = loading.build(sources, problems, host_checks=not args.no_host_checks)
    except ConfigurationInvalid as invalid:
        problems, warnings = invalid.problems, invalid.warnings
    else:
        problems, warnings = [], configuration.warnings
        classes = list(configuration.storage_classes)
    if args.output == "json":
        print(json.dumps(_as_json(problems, warnings, classes), indent=2))
    else:
        for problem in problems:
            print(problem)
        for warning in warnings:
            print(f"warning: {warning}")
        if not problems:
            print(f"good: {len(classes)} {'class' if len(classes) == 1 else 'classes'}")
    return 1 if problems else 0


def _gather(path: str) -> tuple[list[loading.Source], list[Problem]]:
    """The keys that one argument gives."""
    if os.path.isdir(path):
        return loading.read_directory(path, prefix=os.path.join(path, ""))
    text = loading.read_file(path)
    if not isinstance(text, str):
        return [], [Problem(path, "", text[0])]
    try:
        manifest = loading.manifest_sources(path, text)
    except document.Unreadable as error:
        return [], [Problem(path, "", str(error))]
    if manifest is None:
        return [loading.Source(path, os.path.basename(path), text)], []
    if not manifest:
        return [], [Problem(path, "", "holds manifests, but no ConfigMap with data")]
    return manifest, []


def _as_json(
    problems: list[Problem], warnings: tuple[Problem, ...] | list[Problem], classes: list[str]
) -> dict[str, Any]:
    def rows(found: tuple[Problem, ...] | list[Problem]) -> list[dict[str, str]]:
        return [{"file": one.file, "key": one.key, "reason": one.reason} for one in found]

    return {
        "valid": not problems,
        "classes": classes,
        "problems": rows(problems),
        "warnings": rows(warnings),
    }

"""`python -m release`: make all that is published of the version that this tree is of."""

import argparse
import os
import sys
from pathlib import Path

from image.application import ROOT
from image.running import BuildFailed
from release.all import make
from release.order import order


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m release", description=__doc__)
    parser.add_argument("--registry", required=True, help="for image and chart: ghcr.io/somebody")
    parser.add_argument("--source", required=True, help="the repository: https://github.com/a/b")
    parser.add_argument("--builder", required=True, metavar="URI", help="who builds")
    parser.add_argument("--artifacthub", default="", metavar="ID", help="of its repository there")
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "dist", help="a directory")
    arguments = parser.parse_args()
    os.umask(0o022)
    try:
        asked = order(
            ROOT,
            arguments.registry,
            arguments.source,
            arguments.builder,
            arguments.artifacthub,
        )
        make(ROOT, arguments.output, asked)
    except BuildFailed as error:
        print(f"release: {error}", file=sys.stderr)
        return 1
    except ModuleNotFoundError as error:
        print(f"release: there is no {error.name}: install requirements/dev.txt", file=sys.stderr)
        return 1
    for path in sorted(arguments.output.iterdir()):
        print(path)
    return 0


sys.exit(main())

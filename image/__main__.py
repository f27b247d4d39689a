"""`python -m image`: build the image, or write down the newest versions of its packages."""

import argparse
import sys
from pathlib import Path

from image import base
from image.build import ARCHIVE, build
from image.running import BuildFailed


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m image", description=__doc__)
    parser.add_argument("-o", "--output", type=Path, default=ARCHIVE, help="a docker archive")
    parser.add_argument(
        "--record", action="store_true", help="write the newest versions down, and build nothing"
    )
    parser.add_argument(
        "--allow-newest",
        action="store_true",
        help="where the mirror does not have a recorded package, take the newest of all packages",
    )
    arguments = parser.parse_args()
    try:
        if arguments.record:
            base.record_file().write_text(base.record())
            return 0
        built = build(arguments.output, allow_newest=arguments.allow_newest)
    except BuildFailed as error:
        print(f"image: {error}", file=sys.stderr)
        return 1
    size = built.archive.stat().st_size / (1 << 20)
    print(f"{built.archive}: {built.reference}, {size:.0f} MiB, {built.digest}")
    print(f"{built.bill}: what is in it")
    return 0


sys.exit(main())

"""`python -m image`: build the image and sign it, write down the newest versions of its packages,
or verify what was signed."""

import argparse
import sys
from pathlib import Path

from image import base
from image.application import ROOT
from image.architectures import MACHINES, here
from image.build import ARCHIVE, PROVENANCE, Built, build
from image.running import BuildFailed


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m image", description=__doc__)
    parser.add_argument("-o", "--output", type=Path, default=ARCHIVE, help="a docker archive")
    parser.add_argument(
        "--architecture", choices=MACHINES, help="of another processor than this machine's"
    )
    instead = parser.add_mutually_exclusive_group()
    instead.add_argument(
        "--record", action="store_true", help="write the newest versions down, and build nothing"
    )
    instead.add_argument(
        "--sign", type=Path, metavar="KEY", help="sign of which commit it is built, with this key"
    )
    instead.add_argument(
        "--verify",
        type=Path,
        metavar="PUBLIC_KEY",
        help="compare what is built with what is signed",
    )
    parser.add_argument("--builder", metavar="URI", help="who builds and signs, or has to have")
    parser.add_argument(
        "--allow-newest",
        action="store_true",
        help="where the mirror does not have a recorded package, take the newest of all packages",
    )
    arguments = parser.parse_args()
    if arguments.sign and not arguments.builder:
        parser.error("--sign needs --builder, which says who")
    if arguments.architecture and (arguments.sign or arguments.verify):
        parser.error("what is signed is an image for this machine: --architecture is not for it")
    if arguments.builder and not (arguments.sign or arguments.verify):
        parser.error("--builder is for --sign and --verify")
    try:
        if arguments.record:
            of = arguments.architecture or here()
            base.record_file(of).write_text(base.record(of))
            return 0
        if arguments.verify:
            return _verify(arguments.output, arguments.verify, arguments.builder)
        built = (
            _signed(arguments)
            if arguments.sign
            else build(
                arguments.output,
                allow_newest=arguments.allow_newest,
                architecture=arguments.architecture,
            )
        )
    except BuildFailed as error:
        print(f"image: {error}", file=sys.stderr)
        return 1
    except ModuleNotFoundError as error:
        print(f"image: there is no {error.name}: install requirements/dev.txt", file=sys.stderr)
        return 1
    size = built.archive.stat().st_size / (1 << 20)
    print(f"{built.archive}: {built.reference}, {size:.0f} MiB, {built.digest}")
    print(f"{built.bill}: what is in it")
    if arguments.sign:
        print(f"{built.archive.with_suffix(PROVENANCE)}: of which commit it is, signed")
    return 0


def _signed(arguments: argparse.Namespace) -> Built:
    from image import signing  # what it needs, no other build does

    key = signing.private_key(arguments.sign)
    newest = arguments.allow_newest
    return signing.build(arguments.output, ROOT, key, arguments.builder, allow_newest=newest)


def _verify(archive: Path, key: Path, builder: str | None) -> int:
    from image import signing

    try:
        said = signing.verified(archive, signing.public_key(key), builder)
    except signing.NotGenuine as error:
        print(f"image: {error}", file=sys.stderr)
        return 1
    predicate = said.predicate
    newest = predicate.build_definition.external_parameters.allow_newest
    print(f"{archive}, and its bill: as they were signed")
    print(f"built by {predicate.run_details.builder.id}{' with --allow-newest' * newest}")
    print(f"of commit {said.commit}")
    return 0


sys.exit(main())

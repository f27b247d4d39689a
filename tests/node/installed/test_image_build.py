"""The image is built again with the same bytes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from image.build import Built, build

pytestmark = pytest.mark.needs("image")


def test_the_same_inputs_make_the_same_image(built_image: Built, tmp_path: Path) -> None:
    """Layers, description and archive, whoever builds. The base is taken from the cache, where it
    is by what it is made of."""
    before = os.umask(0o077)
    try:
        tree = built_image.archive.parent / "tree"
        again = build(tmp_path / "again.tar", tree, allow_newest=True)
    finally:
        os.umask(before)
    assert again.digest == built_image.digest
    assert again.archive.read_bytes() == built_image.archive.read_bytes()
    assert again.bill.read_bytes() == built_image.bill.read_bytes()

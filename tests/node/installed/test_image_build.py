"""The image is built again with the same bytes, and signed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from base64 import b64decode
from pathlib import Path

import pytest

from image import signing
from image.application import CLIENT, ROOT
from image.base import record_file
from image.build import Built
from tests.decisions.support_git import committed

pytestmark = pytest.mark.needs("image", "git", "openssl")

WHO = "https://builder.example/one"


@pytest.fixture(scope="module")
def tree(built_image: Built) -> Path:
    """What both are built from."""
    return built_image.archive.parent / "tree"


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A private key, with its public one beside as .pub."""
    key = tmp_path_factory.mktemp("key") / "key.pem"
    curve = ["-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256"]
    for words in (
        ["genpkey", *curve, "-out", str(key)],
        ["pkey", "-in", str(key), "-pubout", "-out", str(key.with_suffix(".pub"))],
    ):
        subprocess.run(["openssl", *words], check=True, timeout=60)
    return key


@pytest.fixture(scope="module")
def commit(tree: Path) -> str:
    return committed(tree)


@pytest.fixture(scope="module")
def again(tree: Path, key: Path, commit: str, tmp_path_factory: pytest.TempPathFactory) -> Built:
    """As somebody else would build it, with a client there that is of no source here."""
    assert commit
    (tree / CLIENT).write_text("of another commit")
    archive = tmp_path_factory.mktemp("again") / "again.tar"
    before = os.umask(0o077)
    try:
        return signing.build(archive, tree, signing.private_key(key), WHO, allow_newest=True)
    finally:
        os.umask(before)


def test_the_same_inputs_make_the_same_image(built_image: Built, again: Built) -> None:
    """Layers, description and archive, whoever builds. The base is taken from the cache, where it
    is by what it is made of."""
    assert again.digest == built_image.digest
    assert again.archive.read_bytes() == built_image.archive.read_bytes()
    assert again.bill.read_bytes() == built_image.bill.read_bytes()


def test_what_is_signed_of_it_is_verified(again: Built, key: Path, commit: str) -> None:
    """By the command, and then what is signed: the image by all three names, and what it is of."""
    command = [sys.executable, "-m", "image", "--output", str(again.archive), "--builder", WHO]
    argv = [*command, "--verify", str(key.with_suffix(".pub"))]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert f"of commit {commit}\n" in done.stdout
    envelope = json.loads(again.archive.with_suffix(".intoto.jsonl").read_bytes())
    said = json.loads(b64decode(envelope["payload"]))
    names = [again.archive.name, again.bill.name, again.reference]
    assert [one["name"] for one in said["subject"]] == names
    assert said["subject"][2]["digest"] == {"sha256": again.digest.removeprefix("sha256:")}
    definition = said["predicate"]["buildDefinition"]
    assert definition["externalParameters"] == {"allowNewest": True}
    source, lock, *packages = definition["resolvedDependencies"]
    assert source["digest"] == {"gitCommit": commit}
    assert lock["name"] == "requirements/runtime.txt"
    bill = json.loads(again.bill.read_text())
    debian = [one["purl"] for one in bill["components"] if "pkg:deb/" in one.get("purl", "")]
    # As recorded, or what the mirror has instead.
    named = [one.get("name") or one["uri"] for one in packages]
    assert named in ([f"image/{record_file().name}"], debian)


def test_what_was_signed_of_another_archive_is_gone(built_image: Built) -> None:
    """Of an archive that nobody has signed there is nothing that looks as if."""
    assert not built_image.archive.with_suffix(".intoto.jsonl").exists()

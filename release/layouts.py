"""Images and charts as OCI lays them out in a directory, which tools push as they are.

https://github.com/opencontainers/image-spec/blob/main/image-layout.md. A registry knows what is
pushed by the digests that stand here, so these can be named before anything is pushed.
"""

import hashlib
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from image.base import pack

INDEX = "application/vnd.oci.image.index.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"

Descriptor = dict[str, Any]


class Layout:
    """A directory that is filled blob by blob, and packed."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._blobs = directory / "blobs" / "sha256"
        self._blobs.mkdir(parents=True)
        (directory / "oci-layout").write_text('{"imageLayoutVersion":"1.0.0"}')

    def add(self, content: bytes, kind: str) -> Descriptor:
        """Store a blob of this media type; returns what names it."""
        digest = hashlib.sha256(content).hexdigest()
        (self._blobs / digest).write_bytes(content)
        return {"mediaType": kind, "digest": f"sha256:{digest}", "size": len(content)}

    def add_document(self, document: Mapping[str, Any], kind: str) -> Descriptor:
        """The same of a document that describes other blobs."""
        return self.add(json.dumps(document, sort_keys=True, separators=(",", ":")).encode(), kind)

    def take(self, other: Path) -> Descriptor:
        """Store all blobs of the image that `other` is a layout of; returns what names it."""
        for blob in (other / "blobs" / "sha256").iterdir():
            shutil.copyfile(blob, self._blobs / blob.name)
        (one,) = json.loads((other / "index.json").read_bytes())["manifests"]
        return {key: one[key] for key in ("mediaType", "digest", "size")}

    def pack(self, top: Descriptor, tag: str, archive: Path) -> None:
        """Write the archive, in which `top` is what the tag means."""
        named = {**top, "annotations": {"org.opencontainers.image.ref.name": tag}}
        index = {"schemaVersion": 2, "mediaType": INDEX, "manifests": [named]}
        (self._directory / "index.json").write_text(json.dumps(index, sort_keys=True))
        # Whatever the umask is, and whoever wrote the blobs that were taken.
        for path in self._directory.rglob("*"):
            path.chmod(0o755 if path.is_dir() else 0o644)
        self._directory.chmod(0o755)
        pack(self._directory, archive)

"""A statement under a signature: DSSE, https://github.com/secure-systems-lab/dsse."""

import base64
import os
from pathlib import Path

import msgspec
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519

from image import build as unsigned
from image import provenance
from image.build import BILL, PROVENANCE, Built
from image.running import BuildFailed, run

PASSPHRASE = "SIGN_PASSPHRASE"
#: Of in-toto's statements.
KIND = "application/vnd.in-toto+json"

PrivateKey = ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey
PublicKey = ec.EllipticCurvePublicKey | ed25519.Ed25519PublicKey


class NotGenuine(Exception):
    """An archive is not what was signed, or it was not signed by that key; the message says why."""


class _Signature(msgspec.Struct):
    sig: str


class _Envelope(msgspec.Struct, rename="camel"):
    payload: str
    payload_type: str
    signatures: list[_Signature]


def build(archive: Path, tree: Path, key: PrivateKey, builder: str, *, allow_newest: bool) -> Built:
    """Build the image of `tree`, which is as it was committed, and `attest` it."""
    who, commit = provenance.named(builder), provenance.commit(tree)
    # Nothing else tells of which sources the client is that lies there.
    run(["make", "--always-make", "-C", tree, "flexvolume-client"])
    built = unsigned.build(archive, tree, allow_newest=allow_newest)
    attest(built, tree, commit, key, who, allow_newest=allow_newest)
    return built


def attest(
    built: Built,
    tree: Path,
    commit: str,
    key: PrivateKey,
    builder: provenance.Builder,
    *,
    allow_newest: bool,
) -> None:
    """Write down beside an archive, signed, that it is of this commit.

    Raises BuildFailed where `tree` is not that commit now, as nobody knows since when.
    """
    if (now := provenance.commit(tree)) != commit:
        raise BuildFailed(f"nothing is signed: the tree was of {commit}, and now it is of {now}")
    payload = provenance.statement(
        provenance.subjects(built),
        provenance.dependencies(tree, commit, built.bill),
        builder,
        allow_newest=allow_newest,
    )
    new = built.archive.with_suffix(f"{PROVENANCE}.new")
    new.write_bytes(sealed(KIND, payload, key))
    new.rename(built.archive.with_suffix(PROVENANCE))


def verified(archive: Path, key: PublicKey, builder: str | None) -> provenance.Statement:
    """What is signed of `archive` and of the bill beside it; raises NotGenuine where these are
    others, or where `builder` is given and did not build them."""
    signed, bill = archive.with_suffix(PROVENANCE), archive.with_suffix(BILL)
    for file in (archive, bill, signed):
        if not file.is_file():
            raise NotGenuine(f"there is no {file}")
    try:
        said = _read(opened(signed.read_bytes(), KIND, key))
    except NotGenuine as error:
        raise NotGenuine(f"{signed}: {error}") from error
    if builder is not None and said.predicate.run_details.builder.id != builder:
        raise NotGenuine(f"{signed}: it was built by {said.predicate.run_details.builder.id}")
    for file in (archive, bill):
        there = provenance.described(file, file.name).digest["sha256"]
        if not (wanted := said.digest(file.name)):
            raise NotGenuine(f"{signed}: it is not of {file.name}")
        if wanted != there:
            raise NotGenuine(f"{file} was changed: sha256:{wanted} is signed, and {there} is there")
    return said


def sealed(kind: str, payload: bytes, key: PrivateKey) -> bytes:
    """An envelope, as a line of JSON. The same key makes the same signature of the same."""
    message = encoded(kind, payload)
    if isinstance(key, ed25519.Ed25519PrivateKey):
        signature = key.sign(message)
    else:
        signature = key.sign(message, ec.ECDSA(hashes.SHA256(), deterministic_signing=True))
    text, sig = (base64.b64encode(part).decode() for part in (payload, signature))
    return msgspec.json.encode(_Envelope(text, kind, [_Signature(sig)])) + b"\n"


def opened(text: bytes, kind: str, key: PublicKey) -> bytes:
    """The payload of that kind in an envelope that `key` has signed; raises NotGenuine."""
    try:
        envelope = msgspec.json.decode(text, type=_Envelope)
        payload, *signatures = (
            base64.b64decode(part.translate(_STANDARD), validate=True)
            for part in [envelope.payload, *(one.sig for one in envelope.signatures)]
        )
    except (ValueError, RecursionError) as error:
        raise NotGenuine(f"it is no DSSE envelope: {error}") from error
    if not signatures:
        raise NotGenuine("it has no signature")
    message = encoded(envelope.payload_type, payload)
    if not any(_is_by(key, signature, message) for signature in signatures):
        raise NotGenuine("no signature is by this key, of what is there now")
    if envelope.payload_type != kind:
        raise NotGenuine(f"what is signed is {envelope.payload_type!r}, and not {kind!r}")
    return payload


def encoded(kind: str, payload: bytes) -> bytes:
    """What is signed: DSSE's pre-authentication encoding."""
    name = kind.encode()
    return b"DSSEv1 %d %b %d %b" % (len(name), name, len(payload), payload)


def private_key(file: Path) -> PrivateKey:
    """Of ECDSA with P-256, or Ed25519, in PEM; raises BuildFailed."""
    # No program that the build runs is to find it.
    passphrase = os.environ.pop(PASSPHRASE, "").encode() or None
    try:
        key = serialization.load_pem_private_key(file.read_bytes(), passphrase)
    except OSError as error:
        raise BuildFailed(f"{file}: {error.strerror}") from error
    except TypeError as error:
        there = "is not encrypted" if passphrase else "is encrypted"
        has = "has a passphrase" if passphrase else "has no passphrase"
        raise BuildFailed(f"{file} {there}, and ${PASSPHRASE} {has}") from error
    except (ValueError, UnsupportedAlgorithm) as error:
        raise BuildFailed(
            f"{file} is no private key in PEM as openssl writes them, or not of that passphrase"
        ) from error
    if isinstance(key, ed25519.Ed25519PrivateKey) or (
        isinstance(key, ec.EllipticCurvePrivateKey) and isinstance(key.curve, ec.SECP256R1)
    ):
        return key
    raise BuildFailed(f"{file} is neither a key of ECDSA with P-256 nor of Ed25519")


def public_key(file: Path) -> PublicKey:
    """Of the same; raises NotGenuine."""
    try:
        key = serialization.load_pem_public_key(file.read_bytes())
    except OSError as error:
        raise NotGenuine(f"{file}: {error.strerror}") from error
    except (ValueError, UnsupportedAlgorithm) as error:
        raise NotGenuine(f"{file} is no public key in PEM") from error
    if isinstance(key, ed25519.Ed25519PublicKey) or (
        isinstance(key, ec.EllipticCurvePublicKey) and isinstance(key.curve, ec.SECP256R1)
    ):
        return key
    raise NotGenuine(f"{file} is neither a key of ECDSA with P-256 nor of Ed25519")


#: Signers may take either alphabet of base64.
_STANDARD = str.maketrans("-_", "+/")


def _is_by(key: PublicKey, signature: bytes, message: bytes) -> bool:
    try:
        if isinstance(key, ed25519.Ed25519PublicKey):
            key.verify(signature, message)
        else:
            key.verify(signature, message, ec.ECDSA(hashes.SHA256()))
    except InvalidSignature:
        return False
    return True


def _read(payload: bytes) -> provenance.Statement:
    try:
        return msgspec.json.decode(payload, type=provenance.Statement)
    except (ValueError, RecursionError) as error:
        raise NotGenuine(f"what is signed is no provenance of an image: {error}") from error

"""What is signed of an image: in an envelope that others open, and nothing else passes for it."""

from __future__ import annotations

import base64
import hashlib
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, utils

from image import application, base, pins, provenance, signing
from image.build import Built
from image.pins import Package
from image.provenance import Descriptor
from image.running import BuildFailed
from tests.decisions.support_git import committed

#: Of the example in DSSE's protocol.md.
EXAMPLE = ec.derive_private_key(
    97358161215184420915383655311931858321456579547487070936769975997791359926199, ec.SECP256R1()
)
HELLO = "http://example.com/HelloWorld"
HELLO_SIGNED = (
    "A3JqsQGtVsJ2O2xqrI5IcnXip5GToJ3F+FnZ+O88SjtR6rDAajabZKciJTfUiHqJPcIAriEGAHTVeCUjW2JIZA=="
)
WHO = "https://builder.example/one"
FILES = {"x.tar": b"archive", "x.cdx.json": b"bill"}

Envelope = dict[str, Any]


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """An archive and its bill, and what is signed of them, by EXAMPLE."""
    for name, content in FILES.items():
        (tmp_path / name).write_bytes(content)
    sign(tmp_path / "x.tar", statement())
    return tmp_path / "x.tar"


def statement() -> bytes:
    subjects = [
        Descriptor(name=name, digest={"sha256": hashlib.sha256(content).hexdigest()})
        for name, content in FILES.items()
    ]
    source = Descriptor(name="source", digest={"gitCommit": "c" * 40})
    return provenance.statement(subjects, [source], provenance.named(WHO), allow_newest=False)


def sign(archive: Path, payload: bytes, kind: str = signing.KIND) -> None:
    beside(archive).write_bytes(signing.sealed(kind, payload, EXAMPLE))


def beside(archive: Path) -> Path:
    return archive.with_suffix(".intoto.jsonl")


def test_the_encoding_of_the_specification() -> None:
    assert signing.encoded(HELLO, b"hello world") == (
        b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"
    )
    assert signing.encoded("ü", b"") == b"DSSEv1 2 \xc3\xbc 0 "


def test_the_envelope_of_the_specification() -> None:
    """Its signature too, which is written there as two numbers, and here as ECDSA's are."""
    line = signing.sealed(HELLO, b"hello world", EXAMPLE)
    assert line.endswith(b"}\n")
    envelope = json.loads(line)
    (signature,) = envelope.pop("signatures")
    assert envelope == {"payload": "aGVsbG8gd29ybGQ=", "payloadType": HELLO}
    numbers = utils.decode_dss_signature(base64.b64decode(signature["sig"]))
    raw = b"".join(number.to_bytes(32, "big") for number in numbers)
    assert base64.b64encode(raw).decode() == HELLO_SIGNED


@pytest.mark.parametrize(
    "key",
    [EXAMPLE, ed25519.Ed25519PrivateKey.from_private_bytes(bytes(32))],
    ids=["P-256", "25519"],
)
def test_what_is_sealed_is_opened(key: signing.PrivateKey) -> None:
    """With each alphabet of base64, and beside the signatures of others."""
    payload = bytes(range(256))
    line = signing.sealed(HELLO, payload, key)
    assert line == signing.sealed(HELLO, payload, key)
    envelope = json.loads(line)
    assert {"+", "/"} <= {*envelope["payload"]}
    envelope["signatures"].insert(0, {"keyid": "other", "sig": HELLO_SIGNED})
    alphabet = bytes.maketrans(b"+/", b"-_")
    payload_there = envelope["payload"].encode().translate(alphabet).decode()
    for there in (line, json.dumps({**envelope, "payload": payload_there}).encode()):
        assert signing.opened(there, HELLO, key.public_key()) == payload


def test_what_is_as_it_was_signed(archive: Path) -> None:
    said = signing.verified(archive, EXAMPLE.public_key(), WHO)
    assert said.commit == "c" * 40
    assert said == signing.verified(archive, EXAMPLE.public_key(), None)


def test_a_key_of_somebody_else(archive: Path) -> None:
    for other in (ec.generate_private_key(ec.SECP256R1()), ed25519.Ed25519PrivateKey.generate()):
        with pytest.raises(signing.NotGenuine, match="no signature is by this key"):
            signing.verified(archive, other.public_key(), None)


def test_another_builder(archive: Path) -> None:
    with pytest.raises(signing.NotGenuine, match=f"it was built by {WHO}"):
        signing.verified(archive, EXAMPLE.public_key(), "https://builder.example/two")


@pytest.mark.parametrize("name", FILES)
def test_another_file(archive: Path, name: str) -> None:
    """Changed, gone, or of a name that nobody has signed."""
    file = archive.with_name(name)
    file.write_bytes(b"other")
    with pytest.raises(signing.NotGenuine, match=f"{name} was changed: sha256:.* is signed"):
        signing.verified(archive, EXAMPLE.public_key(), None)
    file.unlink()
    with pytest.raises(signing.NotGenuine, match=f"there is no .*{name}"):
        signing.verified(archive, EXAMPLE.public_key(), None)
    file.write_bytes(FILES[name])
    sign(archive, statement().replace(f'"name":"{name}"'.encode(), b'"name":"y"'))
    with pytest.raises(signing.NotGenuine, match=f"it is not of {name}"):
        signing.verified(archive, EXAMPLE.public_key(), None)


def test_nothing_signed(archive: Path) -> None:
    beside(archive).unlink()
    with pytest.raises(signing.NotGenuine, match=r"there is no .*x\.intoto\.jsonl"):
        signing.verified(archive, EXAMPLE.public_key(), None)


def other_payload(envelope: Envelope) -> None:
    payload = base64.b64decode(envelope["payload"]).replace(b"cccc", b"dddd")
    envelope["payload"] = base64.b64encode(payload).decode()


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (other_payload, "no signature is by this key"),
        (lambda envelope: envelope.update(payloadType="x"), "no signature is by this key"),
        (lambda envelope: envelope.update(payloadType="\ud800"), "no DSSE envelope"),
        (lambda envelope: envelope.update(signatures=[]), "has no signature"),
        (lambda envelope: envelope.update(signatures=[{"sig": ""}]), "no signature is by this key"),
        (lambda envelope: envelope.update(signatures=[{"sig": "%"}]), "no DSSE envelope"),
        (lambda envelope: envelope.update(signatures=[{}]), "no DSSE envelope"),
        (lambda envelope: envelope.pop("signatures"), "no DSSE envelope"),
        (lambda envelope: envelope.update(payload="é"), "no DSSE envelope"),
        (lambda envelope: envelope.update(payload=1), "no DSSE envelope"),
    ],
)
def test_another_envelope(archive: Path, change: Callable[[Envelope], object], told: str) -> None:
    envelope = json.loads(beside(archive).read_bytes())
    change(envelope)
    beside(archive).write_text(json.dumps(envelope))
    with pytest.raises(signing.NotGenuine, match=rf"x\.intoto\.jsonl: .*{told}"):
        signing.verified(archive, EXAMPLE.public_key(), None)


@pytest.mark.parametrize(
    "text", [b"", b"{", b"[]", b"null", b"\xff", b'{"x":' + b"[" * 100_000, b"{}\n{}\n"]
)
def test_what_is_no_envelope(archive: Path, text: bytes) -> None:
    beside(archive).write_bytes(text)
    with pytest.raises(signing.NotGenuine, match="no DSSE envelope"):
        signing.verified(archive, EXAMPLE.public_key(), None)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("in-toto.io/Statement/v1", "in-toto.io/Statement/v2"),
        ("slsa.dev/provenance/v1", "slsa.dev/provenance/v2"),
        ("localvolume.dev/image/v1", "localvolume.dev/image/v2"),
        ('"allowNewest":', '"other":1,"allowNewest":'),
        ('"buildDefinition":', '"other":'),
        ("{", ""),
    ],
)
def test_another_statement_by_the_same_key(archive: Path, before: str, after: str) -> None:
    payload = statement().decode()
    assert before in payload
    sign(archive, payload.replace(before, after).encode())
    with pytest.raises(signing.NotGenuine, match="is no provenance of an image"):
        signing.verified(archive, EXAMPLE.public_key(), None)


def test_what_the_key_has_signed_as_something_else(archive: Path) -> None:
    sign(archive, statement(), "text/plain")
    with pytest.raises(signing.NotGenuine, match="is 'text/plain', and not 'application/vnd"):
        signing.verified(archive, EXAMPLE.public_key(), None)


@pytest.mark.needs("git")
def test_a_tree_of_another_commit_by_now(tmp_path: Path) -> None:
    """Nobody knows which of the two the image has; nor is one signed that was changed."""
    archive, bill, tree = tmp_path / "x.tar", tmp_path / "x.cdx.json", tmp_path / "tree"
    archive.touch()
    bill.write_text('{"components": []}')
    record = tree / "image" / base.record_file().name
    for file in (record, tree / "requirements" / "runtime.txt"):
        file.parent.mkdir(parents=True)
        file.write_text(pins.written([Package("dash", "1", "a" * 64)]))
    commit, built = committed(tree), Built(archive, "x:1", f"sha256:{'1' * 64}", bill)

    def attest() -> None:
        who = provenance.named(WHO)
        signing.attest(built, tree, commit, EXAMPLE, who, allow_newest=False)

    attest()
    assert signing.verified(archive, EXAMPLE.public_key(), WHO).commit == commit
    assert not list(tmp_path.glob("*.new"))
    beside(archive).unlink()
    record.write_text("")
    with pytest.raises(BuildFailed, match="uncommitted changes"):
        attest()
    committed(tree)
    with pytest.raises(BuildFailed, match=f"the tree was of {commit}, and now it is of "):
        attest()
    assert not beside(archive).exists()


@pytest.fixture
def openssl(tmp_path: Path) -> Callable[..., str]:
    def run(*words: str) -> str:
        done = subprocess.run(
            ["openssl", *words], cwd=tmp_path, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


@pytest.mark.needs("openssl")
@pytest.mark.parametrize(
    ("kind", "check"),
    [
        (
            ["EC", "-pkeyopt", "ec_paramgen_curve:P-256"],
            ["dgst", "-sha256", "-verify", "key.pub", "-signature", "sig", "signed"],
        ),
        (
            ["ED25519"],
            [
                *("pkeyutl", "-verify", "-pubin", "-inkey", "key.pub"),
                *("-rawin", "-in", "signed", "-sigfile", "sig"),
            ],
        ),
    ],
    ids=["P-256", "25519"],
)
def test_openssl_verifies_with_keys_that_it_made(
    archive: Path, openssl: Callable[..., str], kind: list[str], check: list[str]
) -> None:
    """As docs/install.md makes them. What is signed is put together here once more."""
    openssl("genpkey", "-algorithm", *kind, "-out", "key.pem")
    openssl("pkey", "-in", "key.pem", "-pubout", "-out", "key.pub")
    key = signing.private_key(archive.with_name("key.pem"))
    beside(archive).write_bytes(signing.sealed(signing.KIND, statement(), key))
    envelope = json.loads(beside(archive).read_bytes())
    payload = base64.b64decode(envelope["payload"])
    head = f"DSSEv1 28 application/vnd.in-toto+json {len(payload)} "
    archive.with_name("signed").write_bytes(head.encode() + payload)
    signature = base64.b64decode(envelope["signatures"][0]["sig"])
    archive.with_name("sig").write_bytes(signature)
    assert "Verified" in openssl(*check)
    signing.verified(archive, signing.public_key(archive.with_name("key.pub")), WHO)


@pytest.mark.needs("openssl")
def test_an_encrypted_key(
    tmp_path: Path, openssl: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its passphrase is taken out of what the build's programs are given."""
    curve = ["-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256"]
    openssl("genpkey", *curve, "-aes256", "-pass", "pass:right", "-out", "key.pem")
    openssl("genpkey", *curve, "-out", "open.pem")
    key, unencrypted = tmp_path / "key.pem", tmp_path / "open.pem"
    monkeypatch.setenv(signing.PASSPHRASE, "right")
    assert isinstance(signing.private_key(key), ec.EllipticCurvePrivateKey)
    with pytest.raises(BuildFailed, match=r"is encrypted, and \$SIGN_PASSPHRASE has no passphrase"):
        signing.private_key(key)
    monkeypatch.setenv(signing.PASSPHRASE, "wrong")
    with pytest.raises(BuildFailed, match="not of that passphrase"):
        signing.private_key(key)
    monkeypatch.setenv(signing.PASSPHRASE, "right")
    with pytest.raises(BuildFailed, match=r"is not encrypted, and .* has a passphrase"):
        signing.private_key(unencrypted)


@pytest.mark.parametrize(
    ("read", "refusal"),
    [(signing.private_key, BuildFailed), (signing.public_key, signing.NotGenuine)],
)
def test_what_is_no_key(
    tmp_path: Path, read: Callable[[Path], object], refusal: type[Exception]
) -> None:
    with pytest.raises(refusal, match="key: No such file"):
        read(tmp_path / "key")
    (tmp_path / "key").write_text("no key")
    with pytest.raises(refusal, match=r"is no (private|public) key in PEM"):
        read(tmp_path / "key")


def test_keys_of_other_kinds(tmp_path: Path) -> None:
    """The verifiers that people have take these two, whatever else they take."""
    file = tmp_path / "key"
    for curve in (ec.SECP384R1(), ec.SECP256K1()):
        other = ec.generate_private_key(curve)
        file.write_bytes(
            other.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        with pytest.raises(BuildFailed, match="neither a key of ECDSA with P-256 nor of Ed25519"):
            signing.private_key(file)
        file.write_bytes(
            other.public_key().public_bytes(
                serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
            )
        )
        with pytest.raises(signing.NotGenuine, match="neither a key of ECDSA"):
            signing.public_key(file)


def command(*words: str | Path) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "image", *map(str, words)]
    return subprocess.run(
        argv, cwd=application.ROOT, capture_output=True, text=True, timeout=120, check=False
    )


def test_the_command_that_verifies(archive: Path) -> None:
    """It ends with 1 where something is wrong, with a sentence, and has built nothing."""
    key = archive.with_name("key.pub")
    key.write_bytes(
        EXAMPLE.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
    )
    there = sorted(archive.parent.iterdir())
    done = command("--verify", key, "--builder", WHO, "--output", archive)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[1:] == [f"built by {WHO}", f"of commit {'c' * 40}"]
    archive.write_bytes(b"other")
    done = command("--verify", key, "--output", archive)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"image: {archive} was changed: sha256:")
    assert done.stderr.count("\n") == 1
    assert sorted(archive.parent.iterdir()) == there
    assert archive.read_bytes() == b"other"


def test_without_what_signs(tmp_path: Path) -> None:
    """As `make install` leaves it: what that takes comes with requirements/dev.txt."""
    code = "import runpy, sys; sys.modules['cryptography'] = None; runpy.run_module('image')"
    for words in (["--verify", "key.pub"], ["--sign", "key.pem", "--builder", WHO]):
        done = subprocess.run(
            [sys.executable, "-c", code, *words, "--output", str(tmp_path / "x.tar")],
            cwd=application.ROOT,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 1
        assert done.stderr.startswith("image: there is no cryptography")
        assert done.stderr.endswith(": install requirements/dev.txt\n")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--sign", "key.pem"], "--sign needs --builder"),
        (["--builder", WHO], "--builder is for --sign and --verify"),
        (["--sign", "key.pem", "--verify", "key.pub", "--builder", WHO], "not allowed with"),
    ],
)
def test_what_the_command_does_not_take(words: list[str], told: str) -> None:
    done = command(*words)
    assert done.returncode == 2
    assert told in done.stderr

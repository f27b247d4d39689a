"""Secrets as tools write them, in what a support bundle takes in: none gets through.

Every one is made up, and put together here, so that no scanner takes it for a real one.
"""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from localvolume.cli.seeing.bundle.redact import LEFT_OUT, Redactor

MADE_UP = "NOTREAL" + "0123456789" * 3
WORDS = "quite made up words"

# Each that is looked for: to leave one out of the pattern must not go unseen.
PREFIXES = [
    *("A" + rest for rest in ("KIA", "SIA", "Iza")),
    "ya" + "29.",
    *("gh" + rest for rest in ("o_", "p_", "r_", "s_", "u_")),
    "github" + "_pat_",
    *("gl" + rest for rest in ("pat-", "dt-", "rt-", "cbt-", "ptt-", "ft-", "imt-", "agent-")),
    *("gl" + rest for rest in ("oas-", "soat-", "ffct-")),
    *("xo" + rest for rest in ("xa-", "xb-", "xe-", "xp-", "xr-", "xs-")),
    "xa" + "pp-",
    *("hv" + rest for rest in ("s.", "b.", "r.")),
    "k8s-" + "aws-v1.",
    *("dckr" + rest for rest in ("_pat_", "_oat_")),
    "np" + "m_",
    "py" + "pi-",
    *("sk" + rest for rest in ("_live_", "_test_")),
    *("rk" + rest for rest in ("_live_", "_test_")),
]

TEXTS = [
    f"DefaultEndpointsProtocol=https;AccountKey={MADE_UP}+/==;EndpointSuffix=core.example",
    f"GET https://account.blob.example/c/b?sv=2024&sp=r&sig={MADE_UP}%3D&se=2026",
    f'{{"auths":{{"registry.example":{{"auth":"{MADE_UP}"}}}}}}',
    f'{{\\"auth\\":\\"{MADE_UP}\\"}}',
    f"pass={MADE_UP}",
    f"DB_PASS={MADE_UP}",
    f"dbPass: {MADE_UP}",
    f"mount -o user=a,pass={MADE_UP} //server/share",
    f"run --pass {MADE_UP} --listen :80",
    f"curl -u admin:{MADE_UP} https://x.example",
    f"curl -uadmin:{MADE_UP} https://x.example",
    f"curl --user 'admin:{MADE_UP}' https://x.example",
    f'["curl", "-u", "admin:{MADE_UP}"]',
    f"clone https://admin:p/{MADE_UP}@git.example/repo",
    f"clone https://admin:p@{MADE_UP}@git.example/repo",
    f"clone https://admin:{MADE_UP}/@/x@git.example/repo",
    f"encryptionKey: {MADE_UP}",
    f"encryption_key={MADE_UP}",
    f"-----BEGIN PGP PRIVATE KEY BLOCK-----\n\n{MADE_UP}\n-----END PGP PRIVATE KEY BLOCK-----",
    f"-----BEGIN PGP MESSAGE-----\n\n{MADE_UP}\n-----END PGP MESSAGE-----",
    f"cut off: -----BEGIN PGP MESSAGE-----\n\n{MADE_UP}",
    f"password: first {MADE_UP}",
    f"a:\n  - password: first {MADE_UP} last\n    name: x",
    f"password: first\n  second {MADE_UP}\nname: x",
    f"password: 'it''s {MADE_UP}'",
    f"pass: |\n  first {MADE_UP}\nname: x",
    f".dockerconfigjson: {MADE_UP}",
]


@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize("around", ["{}", "found {} there", "x={}&y=1", '{{"a":"{}"}}', "({})"])
def test_tokens_go_by_what_they_begin_with(prefix: str, around: str) -> None:
    found = Redactor().text(around.format(prefix + MADE_UP))
    assert MADE_UP not in found
    assert LEFT_OUT in found


@pytest.mark.parametrize("text", TEXTS)
def test_what_is_told_by_what_is_around_it_goes(text: str) -> None:
    redactor = Redactor()
    assert MADE_UP not in redactor.text(text)
    assert redactor.count


def test_objects_as_the_api_gives_them() -> None:
    thing: Any = {
        "data": {"encryptionKey": WORDS, "auth": WORDS, "config": f"password: {WORDS}\nsize: 1\n"},
        "args": ["curl", "-u", f"admin:{WORDS}", "--pass", WORDS, "--size", "1"],
    }
    found = Redactor().value(thing)
    assert WORDS not in json.dumps(found)
    assert "made" not in json.dumps(found)
    assert found["data"]["config"] == f"password: {LEFT_OUT}\nsize: 1\n"
    assert found["args"][-2:] == ["--size", "1"]


@pytest.mark.parametrize(
    "text",
    [
        "docker-pullable://registry.example/image@sha256:0123456789abcdef",
        "passed: 3, bypass: 1, author: somebody, signal=15, authors=2",
        "run --user 1000:1000 -u 0:0 image",
        "global-settings-of-the-node and pypi-x",
        "https://kubernetes.example:6443/api/v1/nodes mail@example.org",
        "first: one\nsecond: two words\n  more\n",
    ],
)
def test_what_only_looks_alike_stays(text: str) -> None:
    redactor = Redactor()
    assert redactor.text(text) == text
    assert redactor.count == 0


def test_a_long_word_in_a_log_takes_no_time() -> None:
    before = time.process_time()
    Redactor().text("a" * 10_000)
    assert time.process_time() - before < 5.0  # it took 20

"""Nothing that looks like a secret goes into a support bundle; what is needed stays."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localvolume.cli.seeing.bundle.redact import LEFT_OUT, Redactor
from localvolume.cli.seeing.bundle.trimming import trimmed

CANARY = "kanarienvogel0123456789"
JWT = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJrYW5hcmllIn0.c2lnbmF0dXJlLWthbmFyaWU"
PEM = f"-----BEGIN RSA PRIVATE KEY-----\nMII{CANARY}\nabc{CANARY}\n-----END RSA PRIVATE KEY-----"

TEXTS = [
    f"Authorization: Bearer {CANARY}",
    f"authorization: basic {CANARY}",
    f'{{"level":"info","headers":{{"Authorization":"Bearer {CANARY}"}}}}',
    f"GET https://admin:{CANARY}@registry.example/v2 failed",
    f"clone https://{CANARY}@git.example/repo",
    f"GET https://api.example/x?token={CANARY}&page=2",
    f"password={CANARY}",
    f"password: '{CANARY} with spaces {CANARY}'",
    f'password = "{CANARY} with \\" and spaces {CANARY}"',
    f'{{"dbPassword": "{CANARY}"}}',
    f'{{\\"dbPassword\\": \\"{CANARY}\\"}}',
    f"DB_PASSWD={CANARY}",
    f"AWS_SECRET_ACCESS_KEY={CANARY}",
    f"api-key: {CANARY}",
    f"x-api_key={CANARY}",
    f"mount -t cifs -o user=a,password={CANARY},ro //server/share",
    f"started with --auth-token {CANARY} --listen :80",
    f"    client-key-data: {CANARY}",
    f"    certificate-authority-data: {CANARY}",
    f"    client-certificate-data: {CANARY}",
    f"token:\n  {CANARY}",
    f"  password: |\n    {CANARY}\n    more {CANARY}\nnext: line",
    f"  password: >-\n    {CANARY}",
    PEM,
    PEM.replace("\n", "\\n"),
    f"cut off: -----BEGIN PRIVATE KEY-----\n{CANARY}",
    f"LS0tLS1CRUdJTiBSU0EgUFJJVkFURSBLRVktLS0tLQ{CANARY}==",
]


@pytest.mark.parametrize("text", TEXTS)
def test_no_text_keeps_its_secret(text: str) -> None:
    redactor = Redactor()
    found = redactor.text(text)
    assert CANARY not in found
    assert LEFT_OUT in found
    assert redactor.count


@pytest.mark.parametrize("around", ["{}", "before {} after", '{{"message": "{}"}}'])
def test_tokens_are_known_by_their_form(around: str) -> None:
    assert JWT not in Redactor().text(around.format(JWT))
    assert "abcdef.0123456789abcdef" not in Redactor().text(
        around.format("abcdef.0123456789abcdef")
    )


def test_our_own_token_goes_wherever_it_is() -> None:
    redactor = Redactor("plain-old-word-token")
    assert redactor.text("x plain-old-word-token y") == f"x {LEFT_OUT} y"
    assert redactor.value({"a": ["plain-old-word-token"]}) == {"a": [LEFT_OUT]}


def test_without_a_token_nothing_is_taken_for_one() -> None:
    assert Redactor("").text("a b") == "a b"


KEPT = [
    "2026-11-21T23:58:26Z INFO published persistentvolume='local-pv-1' class='fast'",
    "not cleaned, the data stays: /mnt/fast/disk-1 is not a valid mount point",
    "its uuid was 'ab-12' and is 'cd-34'",
    "36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue",
    "fast-disks:\n  hostDir: /mnt/fast-disks\n  volumeMode: Block\n",
    "https://kubernetes.example:6443/api/v1/nodes",
    '{"kind":"block","serial":"S3Z8NB0K123456","wwn":"0x5002538d40b1c2d3"}',
    "it holds a signature: ext4",
]


@pytest.mark.parametrize("text", KEPT)
def test_what_is_needed_stays(text: str) -> None:
    redactor = Redactor()
    assert redactor.text(text) == text
    assert redactor.count == 0


@given(st.text(), st.text())
def test_whatever_is_around_it_a_bearer_token_goes(before: str, after: str) -> None:
    text = f"{before} Bearer {CANARY} {after}"
    assert CANARY not in Redactor().text(text)


def test_values_of_variables_go_but_for_those_that_we_read() -> None:
    env = [
        {"name": "HARMLESS_NAME", "value": CANARY},
        {"name": "MY_NAMESPACE", "value": "lvp"},
        {"name": "FROM", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
    ]
    found = Redactor().value({"env": env})
    assert found["env"][0] == {"name": "HARMLESS_NAME", "value": LEFT_OUT}
    assert found["env"][1] == {"name": "MY_NAMESPACE", "value": "lvp"}
    assert found["env"][2]["valueFrom"]["secretKeyRef"]["name"] == "s"


def test_annotations_go_but_for_those_about_volumes() -> None:
    annotations = {
        "kubectl.kubernetes.io/last-applied-configuration": CANARY,
        "example.org/note": CANARY,
        "localvolume.dev/identity": '{"uuid":"a"}',
        "localvolume.dev/health": f"IOErrors: password={CANARY}",
    }
    found = Redactor().value({"metadata": {"annotations": annotations}})["metadata"]["annotations"]
    assert CANARY not in json.dumps(found)
    assert found["localvolume.dev/identity"] == '{"uuid":"a"}'


def test_what_is_called_a_secret_goes_at_any_depth() -> None:
    thing: Any = {"a": [{"adminPassword": CANARY, "size": 3, "tokenReview": True}]}
    assert Redactor().value(thing) == {
        "a": [{"adminPassword": LEFT_OUT, "size": 3, "tokenReview": True}]
    }


def test_arguments_go_also_as_two_words() -> None:
    args = ["agent", "--registry-token", CANARY, "--node", "n1", f"--db-password={CANARY}"]
    found = Redactor().value({"args": args})["args"]
    assert found == ["agent", "--registry-token", LEFT_OUT, "--node", "n1", found[5]]
    assert CANARY not in json.dumps(found)


def test_of_a_node_only_what_tells_of_volumes_is_taken() -> None:
    thing = {
        "metadata": {"name": "n", "managedFields": [CANARY], "labels": {"a": "b"}},
        "spec": {"podCIDR": CANARY, "taints": [{"key": "x"}]},
        "status": {"addresses": [CANARY], "images": [CANARY], "conditions": [{"type": "Ready"}]},
    }
    found = trimmed("nodes", thing)
    assert CANARY not in json.dumps(found)
    assert found["spec"] == {"taints": [{"key": "x"}]}
    assert found["metadata"]["labels"] == {"a": "b"}


@pytest.mark.parametrize("kind", ["pods", "daemonsets", "deployments", "jobs"])
def test_of_a_container_hooks_and_what_else_there_is_are_left_out(kind: str) -> None:
    pod = {
        "nodeName": "n1",
        "containers": [{"name": "c", "image": "i", "lifecycle": {"exec": CANARY}, "args": ["a"]}],
    }
    thing = {
        "metadata": {"name": "x"},
        "spec": pod if kind == "pods" else {"template": {"spec": pod}},
    }
    text = json.dumps(trimmed(kind, thing))
    assert CANARY not in text
    assert '"image": "i"' in text
    assert '"nodeName": "n1"' in text

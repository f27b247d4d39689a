"""Removes from texts and objects what may be a secret: pure, errs on the side of too much."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from localvolume.config.variables import VARIABLES

LEFT_OUT: Final = "<left out>"

_TELLING: Final = (
    r"[\w.-]*(?:passw(?:or)?d|passphrase|passwd|pwd|secret|token|api[_-]?key|access[_-]?key|"
    r"account[_-]?key|encryption[_-]?key|signing[_-]?key|dockerconfig|dockercfg|"
    r"private[_-]?key|key[_-]data|certificate[_-]data|ca[_-]data|authority[_-]data|"
    r"credential|authorization|auth[_-]?header|cookie|session[_-]?id|amz-signature)[\w.-]*"
)
# Words that mark a secret only as a whole word of the name: `pass=`, a registry's `"auth":`, a
# signed URL's `sig=`; not as a part of "passed" or "author".
_WORD: Final = r"(?:[\w.-]*[_.-]|(?-i:[\w.-]*[a-z0-9](?=[PAS])))?(?:pass|auth|sig)(?![\w.-])"
# Only from the start of a word, so that a long word is not scanned again from each letter.
_NAME: Final = rf"(?<![\w.-])(?:{_TELLING}|{_WORD})"
_NAME_IS_SECRET: Final = re.compile(rf"{_TELLING}|{_WORD}", re.IGNORECASE)

# Prefixes of tokens, which their issuers publish for scanners.
_ISSUED: Final = (
    r"(?:AKIA|ASIA)[A-Z0-9]{12,}",  # AWS
    r"AIza[\w-]{30,}",  # Google
    r"ya29\.[\w-]{10,}",
    r"(?:gh[oprsu]_|github_pat_)\w{10,}",
    r"gl(?:pat|dt|rt|cbt|ptt|ft|imt|agent|oas|soat|ffct)-[\w.-]{10,}",  # GitLab
    r"(?:xox[a-z]|xapp)-[\w-]{8,}",  # Slack
    r"hv[sbr]\.[\w-]{8,}",  # Vault
    r"k8s-aws-v1\.[\w=-]+",  # EKS
    r"dckr_(?:pat|oat)_[\w-]{10,}",  # Docker
    r"npm_[A-Za-z0-9]{20,}",
    r"pypi-[\w-]{16,}",
    r"[sr]k_(?:live|test)_\w{10,}",  # Stripe
)

_PATTERNS: Final = (
    # A PGP key or message, also if its end was cut off.
    re.compile(r"-----BEGIN PGP ([A-Z0-9 ]+)-----.*?(?:-----END PGP \1-----|\Z)", re.DOTALL),
    # A private key, also if line ends were escaped or its end was cut off.
    re.compile(
        r"-----BEGIN ([A-Z0-9 ]*)PRIVATE KEY-----.*?(?:-----END \1PRIVATE KEY-----|\Z)", re.DOTALL
    ),
    # The same in base64, as kubeconfigs have it: "-----BEGIN".
    re.compile(r"LS0tLS1CRUdJTi[A-Za-z0-9+/=\\n]*"),
    # JSON web tokens, including those of service accounts.
    re.compile(r"eyJ[A-Za-z0-9_-]{6,}(?:\.[A-Za-z0-9_-]*){1,4}"),
    # Bootstrap tokens.
    re.compile(r"\b[a-z0-9]{6}\.[a-z0-9]{16}\b"),
    re.compile(rf"(?<![A-Za-z0-9])(?:{'|'.join(_ISSUED)})"),
)
_HEADER: Final = re.compile(r"\b(bearer|basic|negotiate|digest)(\s+)[^\s\"'\\,;]+", re.IGNORECASE)
# Up to the last @ of the word, as unescaped passwords may contain / and @. What follows the @ of an
# image's digest is not a host.
_IN_URL: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*://)[^\s\"'<>]+@(?!sha256:)")
# A line of YAML: the value goes to the end of the line, however many words it has, and on through
# the lines below that are indented deeper.
_LINE: Final = re.compile(
    rf"""(?m)^(([ \t]*)(?:-[ \t]+)?["']?{_NAME}["']?[ \t]*:[ \t]+)(?!{LEFT_OUT}[ \t]*$)"""
    r"""[^\s][^\n]*(?:\n\2[ \t]+[^\n]+)*""",
    re.IGNORECASE,
)
_ASSIGNED: Final = re.compile(
    rf"""({_NAME}\\?["']?\s*(?:=|:)\s*)(?!{LEFT_OUT}(?!\S))"""
    r"""(\\?"(?:[^"\\]|\\.)*"?|'[^']*'?|[^\s,;&"']+)""",
    re.IGNORECASE,
)
# The same, with the value as a YAML block on the lines below.
_BLOCK: Final = re.compile(
    rf"(?m)^([ \t-]*{_NAME}\s*:)[ \t]*[|>][^\n]*\n(?:[ \t]+[^\n]*(?:\n|\Z))+", re.IGNORECASE
)
# A flag and its value as two words: `--token abc`.
_FLAG: Final = re.compile(
    rf"(?<![\w.-])(--?(?:{_TELLING}|{_WORD})\s+)([^\s-][^\s]*)", re.IGNORECASE
)
# curl's `-u name:password`, also as two words of a list; two numbers are a UID and a GID instead.
_USER_FLAGS: Final = ("-u", "--user", "-U", "--proxy-user")
_USER: Final = re.compile(
    rf"""((?<![\w-])(?:{"|".join(_USER_FLAGS)})["']?[\s,=]*["']?)"""
    r"""(?!\d+:\d+(?![^\s"']))([^\s:"',]+:[^\s"']+)"""
)

_ANNOTATIONS: Final = (
    "localvolume.dev/",
    "pv.kubernetes.io/",
    "volume.kubernetes.io/",
    "volume.beta.kubernetes.io/",
    "volume.alpha.kubernetes.io/",
    "kuttiproject.org/",
    "local.path.provisioner/",
    "volumes.k8s.elastic.co/",
    "storageclass.kubernetes.io/",
    "snapshot.storage.kubernetes.io/volumesnapshot-being-",
    "groupsnapshot.storage.kubernetes.io/volumegroupsnapshot-being-",
    "groupsnapshot.storage.k8s.io/volumeGroupSnapshotHandle",
    "openebs.io/",
    "cas.openebs.io/",
    "deployment.kubernetes.io/",
    "deprecated.daemonset.template.generation",
)
"""The annotations that are about volumes; the values of all others are left out."""

_ENVIRONMENT: Final = frozenset(map(str, VARIABLES)) | {"NAMESPACE", "PYTHONOPTIMIZE", "VOLUME"}
"""The variables whose values are kept: those that our own processes read."""


class Redactor:
    """`known` are known secrets, like our own token: they are removed wherever they occur.

    `count` is how many things were removed.
    """

    def __init__(self, *known: str) -> None:
        self._known = [one for one in known if len(one) >= 6]
        self.count = 0

    def text(self, text: str) -> str:
        """The text without what looks like a secret."""
        for secret in self._known:
            self.count += text.count(secret)
            text = text.replace(secret, LEFT_OUT)
        for pattern in _PATTERNS:
            text = self._sub(pattern, LEFT_OUT, text)
        text = self._sub(_HEADER, rf"\1\2{LEFT_OUT}", text)
        text = self._sub(_IN_URL, rf"\1{LEFT_OUT}@", text)
        text = self._sub(_USER, rf"\1{LEFT_OUT}", text)
        text = self._sub(_BLOCK, rf"\1 {LEFT_OUT}\n", text)
        text = self._sub(_LINE, rf"\1{LEFT_OUT}", text)
        text = self._sub(_ASSIGNED, rf"\1{LEFT_OUT}", text)
        return self._sub(_FLAG, rf"\1{LEFT_OUT}", text)

    def _sub(self, pattern: re.Pattern[str], by: str, text: str) -> str:
        text, count = pattern.subn(by, text)
        self.count += count
        return text

    def value(self, value: Any, name: str = "") -> Any:
        """The same for an object from the API, at any depth."""
        if isinstance(value, Mapping):
            return {key: self._of_key(str(key), item) for key, item in value.items()}
        if isinstance(value, list):
            return self._list(value, name)
        return self.text(value) if isinstance(value, str) else value

    def _of_key(self, key: str, item: Any) -> Any:
        if key == "annotations" and isinstance(item, Mapping):
            return {name: self._annotation(name, text) for name, text in item.items()}
        if isinstance(item, str) and _NAME_IS_SECRET.fullmatch(key):
            self.count += 1
            return LEFT_OUT
        return self.value(item, key)

    def _annotation(self, name: str, text: Any) -> Any:
        if name.startswith(_ANNOTATIONS):
            return self.value(text)
        self.count += 1
        return LEFT_OUT

    def _list(self, items: list[Any], name: str) -> list[Any]:
        if name == "env":
            return [self._variable(one) for one in items]
        found: list[Any] = []
        after_flag = after_user = False
        for one in items:
            # A flag and its value as two words of a command.
            if isinstance(one, str) and (
                (after_flag and not one.startswith("-")) or (after_user and ":" in one)
            ):
                self.count += 1
                found.append(LEFT_OUT)
            else:
                found.append(self.value(one))
            after_flag = (
                isinstance(one, str)
                and one.startswith("-")
                and "=" not in one
                and bool(_NAME_IS_SECRET.fullmatch(one))
            )
            after_user = one in _USER_FLAGS
        return found

    def _variable(self, one: Any) -> Any:
        if not isinstance(one, Mapping) or "value" not in one:
            return self.value(one)
        if one.get("name") in _ENVIRONMENT:
            return self.value(one)
        self.count += 1
        return {**{k: self.value(v) for k, v in one.items() if k != "value"}, "value": LEFT_OUT}

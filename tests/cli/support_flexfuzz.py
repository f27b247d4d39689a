"""What the FlexVolume driver is fuzzed with, and a second reader that knows the right answer."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from typing import Any

from tests.cli.support_flexclient import LEGAL, OPTIONS, TARGET, without_duplicates

#: Half a surrogate pair, and what stands for bytes that are no character.
BROKEN = re.compile("[\ud800-\udfff\ufffd]+")
TEXT = ["", "a", "é", "😀", "\u2028", '"', "\\", "\n", "\x01", "/", "..", " ", "<&>", "Success"]


class Chance(random.Random):
    """What people, kernels and broken programs say."""

    def text(self) -> str:
        return "".join(self.choices(TEXT, k=self.randrange(6)))

    def value(self, depth: int = 0) -> Any:
        kinds = 9 if depth < 3 else 7
        match self.randrange(kinds):
            case 0 | 1:
                return self.text()
            case 2:
                return self.choice([True, False, None])
            case 3:
                return self.choice([0, -1, 1.5, 2**63 - 1, 2**63, 10**30, 1e300])
            case 4:
                return self.choice([*LEGAL, "Not Supported", "success"])
            case 5 | 6:
                return self.randrange(10**12)
            case 7:
                return [self.value(depth + 1) for _ in range(self.randrange(3))]
        return {self.text(): self.value(depth + 1) for _ in range(self.randrange(4))}

    def damaged(self, data: bytes) -> bytes:
        raw = bytearray(data)
        for _ in range(self.randrange(1, 4)):
            at = self.randrange(len(raw) + 1)
            match self.randrange(5):
                case 0:
                    del raw[at:]
                case 1:
                    raw[at:at] = self.randbytes(self.randrange(5))
                case 2:
                    del raw[at : at + self.randrange(5)]
                case 3:
                    raw[at : at + 1] = bytes([self.randrange(256)])
                case _:
                    raw[at:at] = raw[self.randrange(len(raw) + 1) :]
        return bytes(raw)

    def reply(self) -> bytes:
        """A body: right, nearly right, or nothing like it."""
        names = ["message", "device", "volumeName", "attached", "capabilities", "volumeNewSize"]
        likely: dict[str, Callable[[], Any]] = {
            "attached": lambda: self.choice([True, False]),
            "capabilities": lambda: {
                key: self.choice([True, False, True, False, None, 1])
                for key in self.sample(["attach", "fsGroup", "supportsMetrics", "x"], k=2)
            },
            "volumeNewSize": lambda: self.randrange(10**12),
        }
        body: dict[str, Any] = {"status": self.choice(["Success"] * 4 + ["Failure", self.value()])}
        for name in self.sample(names, k=self.randrange(4)):
            body[name] = self.value() if self.random() < 0.2 else likely.get(name, self.text)()
        if self.random() < 0.2:
            body[self.text()] = self.value()
        if self.random() < 0.1:
            return json.dumps(self.value()).encode()
        raw = json.dumps(body, ensure_ascii=self.random() < 0.5).encode()
        return self.damaged(raw) if self.random() < 0.3 else raw

    def argument(self) -> bytes:
        """Anything that execve takes."""
        match self.randrange(8):
            case 0:
                raw = self.randbytes(self.randrange(200))
            case 1:
                raw = json.dumps(self.value()).encode()
            case 2:
                raw = b"x" * self.randrange(100_000)
            case 3:
                raw = self.damaged(json.dumps(OPTIONS).encode())
            case 4:
                raw = TARGET.encode()
            case 5:
                raw = self.damaged(TARGET.encode())
            case _:
                options = {self.text(): self.text() for _ in range(self.randrange(5))}
                raw = json.dumps(options).encode()
        return raw.replace(b"\0", b"")


def reference(body: bytes) -> dict[str, Any] | None:
    """What kubelet must be told for a body, by another reader; None for one that is no reply."""
    try:
        value = read_strictly(body.decode("utf-8", "replace"))
    except ValueError:
        return None
    if not isinstance(value, dict) or value.get("status") not in ("Success", "Failure"):
        return None
    kinds: dict[str, type] = dict.fromkeys(["status", "message", "device", "volumeName"], str)
    kinds |= {"attached": bool, "capabilities": dict, "volumeNewSize": int}
    said = {key: value[key] for key in kinds if value.get(key) is not None}
    if any(type(one) is not kinds[key] for key, one in said.items()):
        return None
    if not 0 <= said.get("volumeNewSize", 0) < 2**63:
        return None
    names = ["attach", "selinuxRelabel", "supportsMetrics", "fsGroup", "requiresFSResize"]
    given = said.pop("capabilities", {})
    known = {name: given[name] for name in names if given.get(name) is not None}
    if any(type(one) is not bool for one in known.values()):
        return None
    # What says nothing is left out.
    result = {key: one for key, one in {**said, "capabilities": known}.items() if one}
    result.setdefault("message", "")
    return result


def readable(answer: dict[str, Any]) -> str:
    """To compare by: readers differ in how many signs they put for what is no character."""
    return BROKEN.sub("?", json.dumps(answer, ensure_ascii=False, sort_keys=True))


def read_strictly(text: str) -> Any:
    def refuse(constant: str) -> None:
        raise ValueError(constant)

    return json.loads(text, object_pairs_hook=without_duplicates, parse_constant=refuse)


def asked_for(arguments: list[bytes]) -> dict[str, Any] | None:
    """What the agent must be asked for these arguments; None for nothing at all."""
    try:
        match arguments:
            case [b"unmount", target] if target.startswith(b"/"):
                return {"targetDir": target.decode()}
            case [b"mount", target] if target.startswith(b"/"):
                return {"targetDir": target.decode(), "options": {}}
            case [b"mount", target, raw] if target.startswith(b"/"):
                options = read_strictly(raw.decode())
                if not isinstance(options, dict):
                    return None
                if not all(isinstance(value, str) for value in options.values()):
                    return None
                return {"targetDir": target.decode(), "options": options}
    except ValueError:
        pass
    return None

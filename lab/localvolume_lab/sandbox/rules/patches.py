"""The patch formats: merge (RFC 7386), JSON (RFC 6902), strategic merge, and apply.

Strategic merge knows the lists of our kinds that merge by key or as sets (`patchMergeKey` in the
Go types); any other list is replaced. Of the directives, `$patch: delete|replace`, `$retainKeys`,
`$setElementOrder` and `$deleteFromPrimitiveList` are understood: what `kubectl apply`, `edit`,
`label`, `annotate` and `taint` send.

Server-side apply is a strategic merge of the applied configuration: it sets fields and never takes
one away, because the sandbox keeps no owner of fields. There are no apply conflicts.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from localvolume_lab.sandbox.refusals import bad_request, rejected_patch

#: list field -> the key its elements merge by; "" for a set of plain values
_MERGE_KEYS = {
    "ownerReferences": "uid",
    "finalizers": "",
    "conditions": "type",
    "addresses": "type",
    "containers": "name",
    "initContainers": "name",
    "volumes": "name",
    "env": "name",
    "ports": "containerPort",
    "volumeMounts": "mountPath",
    "volumeDevices": "devicePath",
    "imagePullSecrets": "name",
    "secrets": "name",
    "hostAliases": "ip",
    "topologySpreadConstraints": "topologyKey",
}


def merge(target: Any, patch: Any) -> Any:
    """RFC 7386. `target` is not changed; null in the patch removes."""
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge(result.get(key), value)
    return result


def strategic(target: Any, patch: Any) -> Any:
    """Kubernetes' strategic merge patch over one object. `target` is not changed."""
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    directive = patch.get("$patch")
    if directive == "replace":
        return {key: copy.deepcopy(value) for key, value in patch.items() if key != "$patch"}
    if directive == "delete":
        return {}
    result = dict(target) if isinstance(target, dict) else {}
    if (retained := patch.get("$retainKeys")) is not None:
        result = {key: value for key, value in result.items() if key in retained}
    for key, value in patch.items():
        if key.startswith("$deleteFromPrimitiveList/"):
            field = key.partition("/")[2]
            result[field] = [item for item in result.get(field) or [] if item not in value]
        elif key.startswith("$"):
            continue
        elif value is None:
            result.pop(key, None)
        elif isinstance(value, list):
            merged = _merge_list(key, result.get(key), value)
            result[key] = _ordered(key, merged, patch.get(f"$setElementOrder/{key}"))
        else:
            result[key] = strategic(result.get(key), value)
    return result


def _merge_list(field: str, target: Any, patch: list[Any]) -> list[Any]:
    by = _MERGE_KEYS.get(field)
    if by is None or not isinstance(target, list):
        return copy.deepcopy(patch)
    if not by:
        return list(dict.fromkeys([*target, *patch]))
    result = list(target)
    if {"$patch": "replace"} in patch:
        return [item for item in copy.deepcopy(patch) if item != {"$patch": "replace"}]
    for item in patch:
        at = [i for i, old in enumerate(result) if old.get(by) == item.get(by)]
        if item.get("$patch") == "delete":
            result = [old for i, old in enumerate(result) if i not in at]
        elif at:
            result[at[0]] = strategic(result[at[0]], item)
        else:
            result.append(copy.deepcopy(item))
    return result


def _ordered(field: str, items: list[Any], order: Any) -> list[Any]:
    """Elements the caller ordered, in that order; the server's own ones after them."""
    if not isinstance(order, list):
        return items
    by = _MERGE_KEYS.get(field, "")

    def key_of(item: Any) -> Any:
        return item.get(by) if by and isinstance(item, dict) else item

    rank = {key_of(item): i for i, item in enumerate(order)}
    return sorted(items, key=lambda item: rank.get(key_of(item), len(rank)))


def json_patch(target: Any, operations: Any) -> Any:
    """RFC 6902. `target` is not changed.

    Raises 400 for what is no list of operations, 422 for one that cannot be applied.
    """
    if not isinstance(operations, list) or not all(isinstance(op, dict) for op in operations):
        raise bad_request(
            "error decoding patch: json: cannot unmarshal object into Go value of type "
            "[]handlers.jsonPatchOp"
        )
    document = copy.deepcopy(target)
    for operation in operations:
        try:
            document = _operate(document, operation)
        except (KeyError, IndexError, ValueError, TypeError):
            raise rejected_patch() from None
    return document


def _operate(document: Any, operation: Mapping[str, Any]) -> Any:
    op, path = operation["op"], _pointer(operation["path"])
    if op == "test":
        if _get(document, path) != operation.get("value"):
            raise ValueError
        return document
    if op == "remove":
        return _remove(document, path)
    if op == "replace":
        if isinstance(_get(document, path[:-1]), list):
            _get(document, path)  # a missing member of an object is added, as the server does
        return _add(document, path, copy.deepcopy(operation["value"]), replace=True)
    if op == "add":
        return _add(document, path, copy.deepcopy(operation["value"]))
    if op == "copy":
        return _add(document, path, copy.deepcopy(_get(document, _pointer(operation["from"]))))
    if op == "move":
        source = _pointer(operation["from"])
        value = _get(document, source)
        return _add(_remove(document, source), path, value)
    raise ValueError(op)


def _pointer(text: str) -> list[str]:
    if text == "":
        return []
    if not text.startswith("/"):
        raise ValueError(text)
    return [step.replace("~1", "/").replace("~0", "~") for step in text[1:].split("/")]


def _get(document: Any, path: list[str]) -> Any:
    for step in path:
        document = document[int(step)] if isinstance(document, list) else document[step]
    return document


def _add(document: Any, path: list[str], value: Any, *, replace: bool = False) -> Any:
    if not path:
        return value
    parent, last = _get(document, path[:-1]), path[-1]
    if isinstance(parent, list):
        if last == "-":
            parent.append(value)
        elif replace:
            parent[int(last)] = value
        elif 0 <= int(last) <= len(parent):
            parent.insert(int(last), value)
        else:
            raise IndexError(last)
    elif isinstance(parent, dict):
        parent[last] = value
    else:
        raise TypeError(last)
    return document


def _remove(document: Any, path: list[str]) -> Any:
    parent, last = _get(document, path[:-1]), path[-1]
    if isinstance(parent, list):
        del parent[int(last)]
    else:
        del parent[last]
    return document

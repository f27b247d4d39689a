"""What the server refuses to store: the rules our own code can run into, worded as the server does.

Not all of the real rules: names, labels, finalizers, and for the storage kinds what is required,
supported and immutable. Source: k8s.io/kubernetes/pkg/apis/{core,storage,batch}/validation.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from localvolume_lab.sandbox.kinds import (
    CLAIMS,
    CONFIG_MAPS,
    CSI_DRIVERS,
    EVENTS,
    JOBS,
    NAMESPACES,
    PERSISTENT_VOLUMES,
    PODS,
    STORAGE_CAPACITIES,
    STORAGE_CLASSES,
    Resource,
)
from localvolume_lab.sandbox.refusals import Cause
from localvolume_lab.sandbox.rules import quantities

Body = Mapping[str, Any]

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_QUALIFIED = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_CONFIG_KEY = re.compile(r"[-._a-zA-Z0-9]{1,253}")

_SUBDOMAIN_TEXT = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or "
    "'.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used "
    "for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
_NAME_PART = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end "
    "with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for "
    "validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
_VALUE_TEXT = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or "
    "'.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value', "
    " or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
_PLAIN_FINALIZERS = frozenset({"kubernetes", "orphan", "foregroundDeletion"})
_ACCESS_MODES = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
_VOLUME_FIELDS = frozenset(
    {
        "accessModes",
        "capacity",
        "claimRef",
        "mountOptions",
        "nodeAffinity",
        "persistentVolumeReclaimPolicy",
        "storageClassName",
        "volumeAttributesClassName",
        "volumeMode",
    }
)


def _quote(value: Any) -> str:
    return f'"{value}"'


def _bad(field: str, value: Any, why: str) -> Cause:
    shown = "null" if value is None else _quote(value) if isinstance(value, str) else "{…}"
    return Cause(field, "FieldValueInvalid", f"Invalid value: {shown}: {why}")


def _required(field: str, why: str = "") -> Cause:
    return Cause(field, "FieldValueRequired", f"Required value: {why}" if why else "Required value")


def _forbidden(field: str, why: str) -> Cause:
    return Cause(field, "FieldValueForbidden", f"Forbidden: {why}")


def _unsupported(field: str, value: Any, supported: tuple[str, ...]) -> Cause:
    choices = ", ".join(_quote(choice) for choice in supported)
    shown = "null" if value is None else _quote(value)
    return Cause(
        field, "FieldValueNotSupported", f"Unsupported value: {shown}: supported values: {choices}"
    )


def check(resource: Resource, body: Body) -> list[Cause]:
    """Every fault of a whole object, wherever it comes from."""
    faults = _check_meta(resource, body["metadata"])
    check_kind = _CHECKS.get(resource)
    return faults + (check_kind(body) if check_kind else [])


def check_update(resource: Resource, new: Body, old: Body) -> list[Cause]:
    """Faults of `new` as a successor of `old`, those of `check` included."""
    meta, before = new["metadata"], old["metadata"]
    faults = [
        _bad(f"metadata.{field}", meta.get(field), "field is immutable")
        for field in ("uid", "deletionTimestamp")
        if meta.get(field) != before.get(field)
    ]
    if before.get("deletionTimestamp"):
        added = [
            item
            for item in meta.get("finalizers") or []
            if item not in (before.get("finalizers") or [])
        ]
        if added:
            listed = ", ".join(_quote(item) for item in added)
            faults.append(
                _forbidden(
                    "metadata.finalizers",
                    "no new finalizers can be added if the object is being deleted, "
                    f"found new finalizers []string{{{listed}}}",
                )
            )
    faults += check(resource, new)
    check_kind = _UPDATE_CHECKS.get(resource)
    return faults + (check_kind(new, old) if check_kind else [])


def _check_meta(resource: Resource, meta: Body) -> list[Cause]:
    faults: list[Cause] = []
    name = meta.get("name", "")
    if not name:
        faults.append(_required("metadata.name", "name or generateName is required"))
    elif resource is NAMESPACES and "." in name:
        faults.append(_bad("metadata.name", name, "must not contain dots"))
    elif len(name) > (63 if resource is NAMESPACES else 253):
        limit = 63 if resource is NAMESPACES else 253
        faults.append(_bad("metadata.name", name, f"must be no more than {limit} characters"))
    elif not (_LABEL if resource is NAMESPACES else _SUBDOMAIN).fullmatch(name):
        faults.append(_bad("metadata.name", name, _SUBDOMAIN_TEXT))
    for key, value in (meta.get("labels") or {}).items():
        faults += _check_qualified("metadata.labels", key)
        if not _VALUE.fullmatch(value):
            faults.append(_bad("metadata.labels", value, _VALUE_TEXT))
    size = 0
    for key, value in (meta.get("annotations") or {}).items():
        faults += _check_qualified("metadata.annotations", key.lower())
        size += len(key.encode()) + len(value.encode())
    if size > 256 * 1024:
        faults.append(
            Cause(
                "metadata.annotations",
                "FieldValueTooLong",
                "Too long: may not be more than 262144 bytes",
            )
        )
    for i, item in enumerate(meta.get("finalizers") or []):
        field = f"metadata.finalizers[{i}]"
        if "/" not in item and item not in _PLAIN_FINALIZERS:
            why = "name is neither a standard finalizer name nor is it fully qualified"
            faults.append(_bad(field, item, why))
        else:
            faults += _check_qualified(field, item)
    for owner in meta.get("ownerReferences") or []:
        faults += [
            _bad(f"metadata.ownerReferences.{field}", "", "must not be empty")
            for field in ("apiVersion", "kind", "name", "uid")
            if not owner.get(field)
        ]
    return faults


def _check_qualified(field: str, key: str) -> list[Cause]:
    prefix, slash, name = key.rpartition("/")
    if "/" in prefix:
        why = (
            "a qualified name"
            + _NAME_PART.removeprefix("name part")
            + (" with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')")
        )
        return [_bad(field, key, why)]
    faults = []
    if slash and not (len(prefix) <= 253 and _SUBDOMAIN.fullmatch(prefix)):
        faults.append(_bad(field, key, f"prefix part {_SUBDOMAIN_TEXT}"))
    if not _QUALIFIED.fullmatch(name):
        why = "name part must be no more than 63 bytes" if len(name) > 63 else _NAME_PART
        faults.append(_bad(field, key, why))
    return faults


def _check_modes(spec: Body) -> list[Cause]:
    modes = spec.get("accessModes") or []
    if not modes:
        return [_required("spec.accessModes")]
    return [
        _unsupported("spec.accessModes", mode, _ACCESS_MODES)
        for mode in modes
        if mode not in _ACCESS_MODES
    ]


def _check_amount(field: str, amounts: Body) -> list[Cause]:
    amount = amounts.get("storage")
    if amount is not None and quantities.value(amount) <= 0:
        return [_bad(f"{field}[storage]", amount, "must be greater than zero")]
    return []


def _check_class_name(spec: Body) -> list[Cause]:
    name = spec.get("storageClassName")
    if name and not _SUBDOMAIN.fullmatch(name):
        return [_bad("spec.storageClassName", name, _SUBDOMAIN_TEXT)]
    return []


def _check_choice(spec: Body, field: str, choices: tuple[str, ...]) -> list[Cause]:
    value = spec.get(field)
    if value in choices:
        return []
    return [_unsupported(f"spec.{field}", value, choices)]


def _check_volume(body: Body) -> list[Cause]:
    spec = body.get("spec") or {}
    faults = _check_modes(spec)
    capacity = spec.get("capacity") or {}
    if not capacity:
        faults.append(_required("spec.capacity"))
    if set(capacity) != {"storage"}:
        faults.append(_unsupported("spec.capacity", None, ("storage",)))
    faults += _check_amount("spec.capacity", capacity)
    faults += _check_choice(spec, "persistentVolumeReclaimPolicy", ("Delete", "Recycle", "Retain"))
    sources = sorted(set(spec) - _VOLUME_FIELDS)
    if not sources:
        faults.append(_required("spec", "must specify a volume type"))
    faults += [
        _forbidden(f"spec.{source}", "may not specify more than 1 volume type")
        for source in sources[1:]
    ]
    if "local" in sources:
        path = spec["local"].get("path", "")
        if not path:
            faults.append(_required("spec.local.path"))
        elif ".." in path.split("/"):
            faults.append(_bad("spec.local.path", path, "must not contain '..'"))
        terms = ((spec.get("nodeAffinity") or {}).get("required") or {}).get("nodeSelectorTerms")
        if not terms:
            faults.append(_required("spec.nodeAffinity", "Local volume requires node affinity"))
    faults += _check_class_name(spec)
    return faults + _check_choice(spec, "volumeMode", ("Block", "Filesystem"))


def _check_volume_update(new: Body, old: Body) -> list[Cause]:
    spec, before = new.get("spec") or {}, old.get("spec") or {}

    def sources(of: Body) -> dict[str, Any]:
        return {key: value for key, value in of.items() if key not in _VOLUME_FIELDS}

    faults = []
    if sources(spec) != sources(before):
        faults.append(
            _forbidden(
                "spec.persistentvolumesource",
                "spec.persistentvolumesource is immutable after creation",
            )
        )
    if spec.get("volumeMode") != before.get("volumeMode"):
        faults.append(_bad("volumeMode", spec.get("volumeMode"), "field is immutable"))
    if before.get("nodeAffinity") and spec.get("nodeAffinity") != before["nodeAffinity"]:
        why = "field is immutable, except for updating from beta label to GA"
        faults.append(_bad("nodeAffinity", spec.get("nodeAffinity"), why))
    return faults


def _check_claim(body: Body) -> list[Cause]:
    spec = body.get("spec") or {}
    faults = _check_modes(spec)
    requests = (spec.get("resources") or {}).get("requests") or {}
    if "storage" not in requests:
        faults.append(_required("spec.resources[storage]"))
    faults += _check_amount("spec.resources.requests", requests)
    faults += _check_class_name(spec)
    return faults + _check_choice(spec, "volumeMode", ("Block", "Filesystem"))


def _check_claim_update(new: Body, old: Body) -> list[Cause]:
    spec, before = dict(new.get("spec") or {}), dict(old.get("spec") or {})
    if not before.get("volumeName"):
        before.pop("volumeName", None)
        spec.pop("volumeName", None)
    elif (old.get("status") or {}).get("phase") == "Bound":
        # A bound claim may ask for more, and for less again, but not for less than it has.
        asked, had = ((s.get("resources") or {}).get("requests", {}) for s in (spec, before))
        has = (old["status"].get("capacity") or {}).get("storage", "0")
        if asked.get("storage") and had.get("storage"):
            size = quantities.value(asked["storage"])
            if size < quantities.value(had["storage"]) and size <= quantities.value(has):
                why = "field can not be less than status.capacity"
                return [_forbidden("spec.resources.requests.storage", why)]
            spec["resources"] = before["resources"]
    faults = []
    if spec != before:
        why = (
            "spec is immutable after creation except resources.requests and "
            "volumeAttributesClassName for bound claims"
        )
        faults.append(_forbidden("spec", why))
    if spec.get("volumeMode") != before.get("volumeMode"):
        faults.append(_bad("volumeMode", spec.get("volumeMode"), "field is immutable"))
    return faults


def _check_class(body: Body) -> list[Cause]:
    faults = [] if body.get("provisioner") else [_required("provisioner")]
    for field, choices in (
        ("reclaimPolicy", ("Delete", "Retain")),
        ("volumeBindingMode", ("Immediate", "WaitForFirstConsumer")),
    ):
        if body.get(field) not in choices:
            faults.append(_unsupported(field, body.get(field), choices))
    return faults


def _check_class_update(new: Body, old: Body) -> list[Cause]:
    faults = [
        _forbidden(field, f"updates to {field} are forbidden.")
        for field in ("parameters", "provisioner", "reclaimPolicy")
        if new.get(field) != old.get(field)
    ]
    if new.get("volumeBindingMode") != old.get("volumeBindingMode"):
        faults.append(_bad("volumeBindingMode", new.get("volumeBindingMode"), "field is immutable"))
    return faults


def _check_driver_update(new: Body, old: Body) -> list[Cause]:
    # The server's own spelling of the first one.
    named = {"attachRequired": "attachedRequired", "volumeLifecycleModes": "volumeLifecycleModes"}
    return [
        _bad(f"spec.{shown}", new["spec"].get(field), "field is immutable")
        for field, shown in named.items()
        if new["spec"].get(field) != old["spec"].get(field)
    ]


def _check_capacity(body: Body) -> list[Cause]:
    name, capacity = body.get("storageClassName", ""), body.get("capacity")
    faults = []
    if not _SUBDOMAIN.fullmatch(name):
        faults.append(_bad("storageClassName", name, _SUBDOMAIN_TEXT))
    if capacity is not None and quantities.value(capacity) < 0:
        faults.append(_bad("capacity", capacity, "must be greater than or equal to 0"))
    return faults


def _check_capacity_update(new: Body, old: Body) -> list[Cause]:
    return [
        _bad(field, new.get(field), "field is immutable")
        for field in ("nodeTopology", "storageClassName")
        if new.get(field) != old.get(field)
    ]


def _check_event(body: Body) -> list[Cause]:
    about = (body.get("involvedObject") or {}).get("namespace", "")
    where = body["metadata"].get("namespace", "")
    if about != where and not (about == "" and where in {"default", "kube-system"}):
        return [_bad("involvedObject.namespace", about, "does not match event.namespace")]
    return []


def _check_config_map(body: Body) -> list[Cause]:
    why = (
        "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. "
        "'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is "
        "'[-._a-zA-Z0-9]+')"
    )
    return [
        _bad(f"{field}[{key}]", key, why)
        for field in ("data", "binaryData")
        for key in body.get(field) or {}
        if not _CONFIG_KEY.fullmatch(key)
    ]


def _check_pod(body: Body) -> list[Cause]:
    return [] if body["spec"].get("containers") else [_required("spec.containers")]


def _check_job(body: Body) -> list[Cause]:
    spec = ((body.get("spec") or {}).get("template") or {}).get("spec") or {}
    faults = [] if spec.get("containers") else [_required("spec.template.spec.containers")]
    if spec.get("restartPolicy") not in {"OnFailure", "Never"}:
        why = 'valid values: "OnFailure", "Never"'
        faults.append(_required("spec.template.spec.restartPolicy", why))
    return faults


_CHECKS = {
    PERSISTENT_VOLUMES: _check_volume,
    CLAIMS: _check_claim,
    STORAGE_CLASSES: _check_class,
    STORAGE_CAPACITIES: _check_capacity,
    EVENTS: _check_event,
    CONFIG_MAPS: _check_config_map,
    PODS: _check_pod,
    JOBS: _check_job,
}
_UPDATE_CHECKS = {
    PERSISTENT_VOLUMES: _check_volume_update,
    CLAIMS: _check_claim_update,
    STORAGE_CLASSES: _check_class_update,
    CSI_DRIVERS: _check_driver_update,
    STORAGE_CAPACITIES: _check_capacity_update,
}

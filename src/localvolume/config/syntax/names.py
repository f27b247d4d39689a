"""The syntax that Kubernetes requires of names, label keys and label values.

Source: the Kubernetes documentation, "Object Names and IDs" and "Labels and Selectors". Each
function returns None for a good value, and otherwise what is wrong with it.
"""

import re

_DNS_LABEL = r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = re.compile(rf"{_DNS_LABEL}(?:\.{_DNS_LABEL})*")
_NAME = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?")
_SUBDOMAIN_LIMIT = 253
_NAME_LIMIT = 63
_OF = "letters, digits, %s, beginning and ending with a letter or digit"
_FEW_MARKS = "'-' and '.'"
_MARKS = "'-', '_' and '.'"


def fault_of_object_name(value: str) -> str | None:
    """A DNS subdomain, as the names of storage classes, nodes and namespaces are."""
    if len(value) > _SUBDOMAIN_LIMIT:
        return f"has {len(value)} characters; {_SUBDOMAIN_LIMIT} are allowed"
    if not _SUBDOMAIN.fullmatch(value):
        return f"must be lower case {_OF % _FEW_MARKS}"
    return None


def fault_of_label_key(value: str) -> str | None:
    """The key of a label or a taint: a name, with or without a DNS prefix and a slash."""
    prefix, slash, name = value.rpartition("/")
    if slash and (fault := fault_of_object_name(prefix)):
        return f"has a bad prefix before the slash: it {fault}"
    if len(name) > _NAME_LIMIT:
        return f"has a name of {len(name)} characters; {_NAME_LIMIT} are allowed"
    if not _NAME.fullmatch(name):
        return (
            "must be letters, digits, '-', '_' and '.', beginning and ending with a letter or digit"
        )
    return None


def fault_of_label_value(value: str) -> str | None:
    """The value of a label; it may be empty."""
    if len(value) > _NAME_LIMIT:
        return f"has {len(value)} characters; {_NAME_LIMIT} are allowed"
    if value and not _NAME.fullmatch(value):
        return (
            "must be letters, digits, '-', '_' and '.', beginning and ending with a letter or digit"
        )
    return None

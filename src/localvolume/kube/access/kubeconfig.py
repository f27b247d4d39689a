"""Reading kubeconfig files: which server, which user, which namespace.

The format is client-go's clientcmd/api/v1. Several files (KUBECONFIG=a:b) merge as kubectl merges
them: the first file to name something wins. Only fields that we honour are read. A field that would
change who we are and that we cannot honour (auth-provider) is refused, never ignored.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from localvolume.kube.errors import AccessInvalid

if TYPE_CHECKING:
    from yaml import CSafeLoader


class _Part(msgspec.Struct, rename="kebab", kw_only=True):
    # The file it came from: relative paths are relative to that file.
    origin: str = ""

    def path(self, value: str) -> str:
        return os.path.join(os.path.dirname(os.path.abspath(self.origin)), value)


class Cluster(_Part, kw_only=True, rename="kebab"):
    server: str = ""
    certificate_authority: str = ""
    certificate_authority_data: str = ""
    insecure_skip_tls_verify: bool = False
    tls_server_name: str = ""
    proxy_url: str = ""


class EnvironmentVariable(msgspec.Struct):
    name: str
    value: str = ""


class ExecPlugin(msgspec.Struct, rename="camel", kw_only=True):
    """client.authentication.k8s.io ExecConfig: a command that prints credentials."""

    api_version: str
    command: str
    args: list[str] | None = None
    env: list[EnvironmentVariable] | None = None
    install_hint: str = ""
    provide_cluster_info: bool = False
    interactive_mode: str = "IfAvailable"


class User(_Part, kw_only=True, rename="kebab"):
    token: str = ""
    token_file: str = msgspec.field(name="tokenFile", default="")
    client_certificate: str = ""
    client_certificate_data: str = ""
    client_key: str = ""
    client_key_data: str = ""
    username: str = ""
    password: str = ""
    as_user: str = msgspec.field(name="as", default="")
    as_uid: str = ""
    as_groups: list[str] | None = None
    as_user_extra: dict[str, list[str]] | None = None
    exec_plugin: ExecPlugin | None = msgspec.field(name="exec", default=None)
    auth_provider: dict[str, Any] | None = None


class Context(_Part, kw_only=True, rename="kebab"):
    cluster: str = ""
    user: str = ""
    namespace: str = ""


class _NamedCluster(msgspec.Struct):
    name: str
    cluster: Cluster | None = None


class _NamedUser(msgspec.Struct):
    name: str
    user: User | None = None


class _NamedContext(msgspec.Struct):
    name: str
    context: Context | None = None


class _File(msgspec.Struct, rename="kebab"):
    clusters: list[_NamedCluster] | None = None
    users: list[_NamedUser] | None = None
    contexts: list[_NamedContext] | None = None
    current_context: str | None = None


class Chosen(msgspec.Struct):
    """What one context of one or more kubeconfig files says. `source` names the files."""

    source: str
    context: str
    cluster: Cluster
    user: User
    namespace: str


def read_kubeconfig(paths: Sequence[str], context: str | None = None) -> Chosen:
    """Read and merge the files and pick a context, the current one by default.

    Missing files are skipped as long as one exists. Raises AccessInvalid.
    """
    source = ":".join(paths)
    clusters: dict[str, Cluster] = {}
    users: dict[str, User] = {}
    contexts: dict[str, Context] = {}
    current = context or ""
    found = False
    for path in paths:
        try:
            file = _read(path)
        except FileNotFoundError:
            continue
        found = True
        for named in file.clusters or ():
            clusters.setdefault(named.name, _from(path, named.cluster or Cluster()))
        for named_user in file.users or ():
            users.setdefault(named_user.name, _from(path, named_user.user or User()))
        for named_context in file.contexts or ():
            contexts.setdefault(named_context.name, named_context.context or Context())
        current = current or file.current_context or ""
    if not found:
        raise AccessInvalid(f"{source}: no such file")
    if not current:
        raise AccessInvalid(f"{source}: current-context is not set; choose a context")
    if current not in contexts:
        known = ", ".join(sorted(contexts)) or "none"
        raise AccessInvalid(
            f"{source}: there is no context {current!r} in contexts (there: {known})"
        )
    chosen = contexts[current]
    if chosen.cluster not in clusters:
        raise AccessInvalid(
            f"{source}: contexts[{current}].cluster: there is no cluster {chosen.cluster!r}"
        )
    if chosen.user and chosen.user not in users:
        raise AccessInvalid(f"{source}: contexts[{current}].user: there is no user {chosen.user!r}")
    cluster = clusters[chosen.cluster]
    if not cluster.server:
        raise AccessInvalid(
            f"{cluster.origin}: clusters[{chosen.cluster}].cluster.server is not set"
        )
    user = users.get(chosen.user) or User()
    if user.auth_provider is not None:
        raise AccessInvalid(
            f"{user.origin}: users[{chosen.user}].user.auth-provider is not supported "
            "(Kubernetes removed it); use an exec plugin"
        )
    return Chosen(source, current, cluster, user, chosen.namespace or "default")


def _from(path: str, part: Any) -> Any:
    part.origin = path
    return part


def _read(path: str) -> _File:
    # Imported here: an agent in a cluster never reads a kubeconfig.
    import yaml

    from localvolume import yamlaliases

    try:
        with open(path, "rb") as file:
            text = file.read()
    except FileNotFoundError:
        raise
    except OSError as error:
        raise AccessInvalid(f"{path}: cannot be read: {error.strerror}") from error
    try:
        yamlaliases.refuse(yaml.parse(text, Loader=_loader()))
        loaded = yaml.load(text, Loader=_loader())  # noqa: S506 - a safe one
    except yamlaliases.Excessive as error:
        raise AccessInvalid(f"{path}: {error}") from error
    except (yaml.YAMLError, ValueError) as error:
        raise AccessInvalid(f"{path}: not YAML: {error}") from error
    try:
        # Not strict: the loader keeps "true" as a string.
        return msgspec.convert(loaded or {}, _File, strict=False)
    except msgspec.ValidationError as error:
        raise AccessInvalid(f"{path}: {_in_their_words(str(error))}") from error


def _in_their_words(message: str) -> str:
    """Turn msgspec's "… - at `$.users[0].user.token`" into "users[0].user.token: …"."""
    match = re.fullmatch(r"(.*) - at `\$\.?(.*)`", message, re.DOTALL)
    return f"{match[2]}: {match[1]}" if match and match[2] else message


def _loader() -> type[CSafeLoader]:
    """A loader that reads every scalar but null as a string: a token may be all digits."""
    import yaml

    rules = yaml.CSafeLoader.yaml_implicit_resolvers
    kept = ("tag:yaml.org,2002:null", "tag:yaml.org,2002:merge")
    trimmed = {first: [rule for rule in of if rule[0] in kept] for first, of in rules.items()}
    return type("Loader", (yaml.CSafeLoader,), {"yaml_implicit_resolvers": trimmed})

"""Who we are to the API server, and how we know that it is the API server.

An `Access` comes from a kubeconfig or from the service account of the pod we run in. Credentials
rotate: token files are read again (at most every 60 s, and when the server answers 401), so are
certificates (when the server answers 401 or does not verify), and exec plugins run again when
their credentials expire or are refused.
"""

from __future__ import annotations

import asyncio
import base64
import ipaddress
import logging
import os
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Final, Protocol
from urllib.parse import SplitResult, quote, urlsplit

from localvolume.kube.access.tls import Pem, Tls
from localvolume.kube.errors import AccessInvalid, without_credentials

# The proxy for the API server comes from the environment, as in Go's http.ProxyFromEnvironment.
#
# aiohttp's own reading of the environment would also take passwords from ~/.netrc, and does not
# know CIDR blocks in NO_PROXY, which usually exempt a pod's traffic to 10.96.0.1.


def proxy_from_environment(server: str, environ: Mapping[str, str]) -> str | None:
    """The proxy's URL for this server URL, or None. Loopback is never proxied."""
    parts = urlsplit(server)
    host = parts.hostname or ""
    proxy = _variable(environ, f"{parts.scheme}_proxy")
    if not proxy or _is_loopback(host) or _is_exempt(host, parts.port, environ):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


def _variable(environ: Mapping[str, str], name: str) -> str:
    return environ.get(name.upper()) or environ.get(name) or ""


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _is_loopback(host: str) -> bool:
    address = _address(host)
    return host == "localhost" or (address is not None and address.is_loopback)


def _is_exempt(host: str, port: int | None, environ: Mapping[str, str]) -> bool:
    address = _address(host)
    for rule in _variable(environ, "no_proxy").split(","):
        rule = rule.strip().lower()
        if rule == "*":
            return True
        if address is not None and "/" in rule:
            try:
                if address in ipaddress.ip_network(rule, strict=False):
                    return True
            except ValueError:
                continue
        name, _, rule_port = rule.rpartition(":") if rule.count(":") == 1 else (rule, "", "")
        if rule_port and rule_port != str(port):
            continue
        suffix = name.removeprefix("*").removeprefix(".")
        if suffix and (host == suffix or (address is None and host.endswith(f".{suffix}"))):
            return True
    return False


if TYPE_CHECKING:
    import ssl

    from localvolume.kube.access.kubeconfig import Chosen, User

SERVICE_ACCOUNT: Final = "/var/run/secrets/kubernetes.io/serviceaccount"


def _parts(url: str, what: str) -> SplitResult:
    """The parts of `url`, which `what` names. Raises AccessInvalid, which does not show it: with a
    / in a password, nothing tells where that ends."""
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as error:
        text = f"{what} is not a URL: its host or port is not understood"
        raise AccessInvalid(text) from error
    return parts


def _check(server: str, source: str) -> None:
    """Raises AccessInvalid, without credentials in it, if no API server can have this URL."""
    parts = _parts(server, f"{source}: server")
    shown = without_credentials(server.partition("#")[0].partition("?")[0])
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise AccessInvalid(f"{source}: server {shown!r} is not an http or https URL")
    if parts.query or parts.fragment:
        raise AccessInvalid(f"{source}: server {shown} has a query: an API server's has none")
    if "@" in parts.netloc:
        text = f"{source}: server {shown} has a user name in its URL: put it into users"
        raise AccessInvalid(text)


def _check_proxy(proxy: str, origin: str) -> None:
    """The same of a proxy's URL."""
    parts = _parts(proxy, f"{origin}: proxy-url, or HTTPS_PROXY,")
    if parts.scheme not in ("http", "https"):
        shown = without_credentials(proxy)
        raise AccessInvalid(f"{origin}: proxy-url {shown!r}: only http and https proxies")


class Access:
    """The way to one API server. Made by `find_access`, `from_kubeconfig` or `from_cluster`.

    `server`: its URL, without a trailing slash. `source`: where this was read, for messages.
    `namespace`: the default one. `proxy`: a proxy's URL. `server_hostname`: the name that the
    server's certificate must have, if it is not the URL's.
    """

    def __init__(
        self,
        server: str,
        *,
        source: str,
        namespace: str = "default",
        token: TokenSource | None = None,
        tls: Tls | None = None,
        headers: tuple[tuple[str, str], ...] = (),
        proxy: str | None = None,
        server_hostname: str | None = None,
    ) -> None:
        _check(server, source)
        self.server: Final = server.rstrip("/")
        self.source: Final = source
        self.namespace: Final = namespace
        self.headers: Final = headers
        self.proxy: Final = proxy
        self.server_hostname: Final = server_hostname
        self._token: Final = token or FixedToken("")
        self._tls: Final = tls

    @property
    def shown(self) -> str:
        """The server, and the proxy on the way, for messages."""
        if not self.proxy:
            return self.server
        return f"{self.server}, through the proxy {without_credentials(self.proxy)}"

    @property
    def context(self) -> ssl.SSLContext | None:
        """The TLS context to use for the next request; None for plain http."""
        return self._tls.context if self._tls else None

    async def token(self) -> str:
        """The bearer token for the next request, empty for none. Raises AccessInvalid."""
        return await self._token.get()

    async def renew(self, refused: str, used: ssl.SSLContext | None) -> bool:
        """Renew this refused token, or our certificate if it is still the one of the context that
        was used. True if trying again makes sense. Raises AccessInvalid."""
        renewed = await self._token.renew(refused)
        return self.renew_tls(used) or renewed

    def renew_tls(self, used: ssl.SSLContext | None) -> bool:
        """Read certificates again; True if the context is another than the one that was used:
        another request may have renewed it meanwhile. Raises AccessInvalid."""
        if self._tls is None:
            return False
        self._tls.reload()
        return self._tls.context is not used


def find_access(
    kubeconfig: str | None = None,
    *,
    context: str | None = None,
    environ: Mapping[str, str] | None = None,
    service_account: str = SERVICE_ACCOUNT,
) -> Access:
    """Use the named kubeconfig, else KUBECONFIG, else the pod's service account, else the user's.

    Raises AccessInvalid, which names file, field and reason.
    """
    environ = os.environ if environ is None else environ
    if kubeconfig:
        return from_kubeconfig([kubeconfig], context=context, environ=environ)
    named = [path for path in environ.get("KUBECONFIG", "").split(os.pathsep) if path]
    if named:
        return from_kubeconfig(named, context=context, environ=environ)
    in_cluster = "KUBERNETES_SERVICE_HOST" in environ
    if in_cluster and os.path.exists(f"{service_account}/token"):
        return from_cluster(environ=environ, service_account=service_account)
    home = os.path.join(environ.get("HOME", "/"), ".kube", "config")
    if os.path.exists(home):
        return from_kubeconfig([home], context=context, environ=environ)
    missing = f"no {service_account}/token" if in_cluster else "not in a cluster"
    raise AccessInvalid(f"no way to an API server: no KUBECONFIG, {missing}, no {home}")


def from_cluster(
    *, environ: Mapping[str, str] | None = None, service_account: str = SERVICE_ACCOUNT
) -> Access:
    """Use the service account of the pod we run in. Raises AccessInvalid."""
    environ = os.environ if environ is None else environ
    try:
        host, port = environ["KUBERNETES_SERVICE_HOST"], environ["KUBERNETES_SERVICE_PORT"]
    except KeyError as error:
        raise AccessInvalid(f"{error.args[0]} is not set: not in a cluster") from error
    server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    nothing = Pem("")
    try:
        with open(f"{service_account}/namespace", encoding="utf-8") as file:
            namespace = file.read().strip()
    except OSError:
        namespace = ""
    return Access(
        server,
        source=service_account,
        namespace=namespace or "default",
        token=TokenFile(f"{service_account}/token", field="service account token"),
        tls=Tls(
            authority=Pem("service account ca.crt", path=f"{service_account}/ca.crt"),
            certificate=nothing,
            key=nothing,
        ),
        proxy=proxy_from_environment(server, environ),
    )


def from_kubeconfig(
    paths: list[str], *, context: str | None = None, environ: Mapping[str, str] | None = None
) -> Access:
    """Use a context of kubeconfig files, the current one by default. Raises AccessInvalid."""
    # Imported here: an agent in a cluster never reads a kubeconfig.
    from localvolume.kube.access.kubeconfig import read_kubeconfig

    environ = os.environ if environ is None else environ
    chosen = read_kubeconfig(paths, context)
    cluster, user = chosen.cluster, chosen.user
    tls = _tls(chosen) if cluster.server.startswith("https://") else None
    source = f"{chosen.source}, context {chosen.context}"
    _check(cluster.server, source)
    proxy = cluster.proxy_url or proxy_from_environment(cluster.server, environ)
    if proxy:
        _check_proxy(proxy, cluster.origin)
    return Access(
        cluster.server,
        source=source,
        namespace=chosen.namespace,
        token=_token(chosen, tls),
        tls=tls,
        headers=_headers(user),
        proxy=proxy,
        server_hostname=cluster.tls_server_name or None,
    )


def _tls(chosen: Chosen) -> Tls:
    cluster, user = chosen.cluster, chosen.user

    def pem(field: str, path: str, data: str, part: str, origin: str) -> Pem:
        where = f"{origin}: {part}.{field}"
        base = os.path.dirname(os.path.abspath(origin))
        return Pem(where, path=os.path.join(base, path) if path else "", data=data)

    part, origin = "user", user.origin
    return Tls(
        authority=pem(
            "certificate-authority",
            cluster.certificate_authority,
            cluster.certificate_authority_data,
            "cluster",
            cluster.origin,
        ),
        certificate=pem(
            "client-certificate",
            user.client_certificate,
            user.client_certificate_data,
            part,
            origin,
        ),
        key=pem("client-key", user.client_key, user.client_key_data, part, origin),
        insecure=cluster.insecure_skip_tls_verify,
    )


def _token(chosen: Chosen, tls: Tls | None) -> TokenSource:
    user = chosen.user
    # client-go's order: a token file wins over a token, both over a plugin.
    if user.token_file:
        field = f"{user.origin}: user.tokenFile"
        return TokenFile(user.path(user.token_file), field=field)
    if user.token:
        return FixedToken(user.token)
    plugin = user.exec_plugin
    if plugin is None:
        return FixedToken("")
    from localvolume.kube.access import execplugin

    where = f"{user.origin}: user.exec"
    execplugin.check(plugin, where)

    def on_certificate(pair: bytes) -> None:
        if tls is not None:
            tls.use_certificate(pair)

    return PluginToken(lambda: execplugin.run(chosen, plugin, where), on_certificate=on_certificate)


def _headers(user: User) -> tuple[tuple[str, str], ...]:
    headers: list[tuple[str, str]] = []
    if user.username:
        pair = base64.b64encode(f"{user.username}:{user.password}".encode()).decode()
        headers.append(("Authorization", f"Basic {pair}"))
    # Without these we would act with more rights than the administrator meant us to have.
    if user.as_user:
        headers.append(("Impersonate-User", user.as_user))
    if user.as_uid:
        headers.append(("Impersonate-Uid", user.as_uid))
    headers += [("Impersonate-Group", group) for group in user.as_groups or ()]
    for key, values in (user.as_user_extra or {}).items():
        name = f"Impersonate-Extra-{quote(key, safe='')}"
        headers += [(name, value) for value in values]
    if not user.as_user and any(name.startswith("Impersonate") for name, _ in headers):
        raise AccessInvalid(f"{user.origin}: user.as-uid, as-groups, as-user-extra need user.as")
    return tuple(headers)


if TYPE_CHECKING:
    from localvolume.kube.access.execplugin import Credential

_log = logging.getLogger(__name__)

# Bearer tokens that rotate: from a file that is rewritten, or from an exec plugin.

# client-go's period: kubelet rewrites a token at 80 % of its life, which is an hour or more.
FILE_AGE_SECONDS: Final = 60.0
# Renew credentials this long before they expire, rather than be refused in the middle of work.
_EXPIRY_MARGIN_SECONDS: Final = 30.0


class TokenSource(Protocol):
    async def get(self) -> str:
        """The token to use now, empty for none. Raises AccessInvalid."""

    async def renew(self, refused: str) -> bool:
        """Renew a token that the server refused. True if trying again makes sense."""


class FixedToken:
    """A token that never changes."""

    def __init__(self, token: str) -> None:
        self._token: Final = token

    async def get(self) -> str:
        return self._token

    async def renew(self, refused: str) -> bool:
        return refused != self._token


class TokenFile:
    """A token in a file, read again at most every 60 s and when the server refuses it."""

    def __init__(
        self, path: str, *, field: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._path: Final = path
        self._field: Final = field
        self._clock: Final = clock
        self._token = ""
        self._read_at = clock()
        self._read()
        if not self._token:
            raise AccessInvalid(f"{field}: {path}: empty")

    async def get(self) -> str:
        if self._clock() - self._read_at >= FILE_AGE_SECONDS:
            self._read_again()
        return self._token

    async def renew(self, refused: str) -> bool:
        self._read_again()
        return self._token != refused

    def _read_again(self) -> None:
        try:
            self._read()
        except AccessInvalid as error:
            # The old token may be valid for a while; the server will refuse it once it is not.
            _log.warning("keeping the token read before: %s", error)

    def _read(self) -> None:
        # A few hundred bytes from a tmpfs or the page cache: not worth a thread.
        self._read_at = self._clock()
        try:
            with open(self._path, encoding="utf-8") as file:
                token = file.read().strip()
        except (OSError, UnicodeDecodeError) as error:
            raise AccessInvalid(f"{self._field}: {self._path}: {error}") from error
        self._token = token or self._token


class PluginToken:
    """What an exec plugin prints: a token, a client certificate for `on_certificate`, or both."""

    def __init__(
        self,
        run: Callable[[], Awaitable[Credential]],
        *,
        on_certificate: Callable[[bytes], None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._run: Final = run
        self._on_certificate: Final = on_certificate
        self._clock: Final = clock
        self._credential: Credential | None = None
        self._one_at_a_time: Final = asyncio.Lock()

    async def get(self) -> str:
        async with self._one_at_a_time:
            if self._credential is None or self._is_expiring(self._credential):
                await self._ask()
            return self._token()

    async def renew(self, refused: str) -> bool:
        async with self._one_at_a_time:
            if self._token() == refused:
                await self._ask()
            return True

    def _token(self) -> str:
        return (self._credential.token or "") if self._credential else ""

    def _is_expiring(self, credential: Credential) -> bool:
        expiry = credential.expiration_timestamp
        return expiry is not None and expiry.timestamp() - _EXPIRY_MARGIN_SECONDS < self._clock()

    async def _ask(self) -> None:
        self._credential = credential = await self._run()
        if credential.client_certificate_data:
            pair = f"{credential.client_certificate_data}\n{credential.client_key_data}"
            self._on_certificate(pair.encode())

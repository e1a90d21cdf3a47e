"""HTTP GET as this program does it: credentials from the environment, faults in one line, nothing secret in any of them.

    KVPRESSURE_BEARER_TOKEN   sent as `Authorization: Bearer …`
    KVPRESSURE_BASIC_AUTH     `user:password`, sent as basic authentication; `https://user:password@host` does the same
    KVPRESSURE_CA_FILE        PEM file of the authority that signed the server's certificate, where the system does not know it
    https_proxy, no_proxy     as everywhere

A redirect is not followed: it would carry the credentials to wherever it points.
"""

from __future__ import annotations

import base64
import gzip
import json
import os
import socket
import ssl
import zlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http.client import HTTPException
from urllib.error import HTTPError, URLError
from urllib.parse import SplitResult, quote, unquote, urlencode, urlsplit, urlunsplit
from urllib.request import HTTPRedirectHandler, HTTPSHandler, OpenerDirector, Request, build_opener

BEARER, BASIC, CA_FILE = "KVPRESSURE_BEARER_TOKEN", "KVPRESSURE_BASIC_AUTH", "KVPRESSURE_CA_FILE"
PASSING = frozenset({408, 425, 429, 500, 502, 503, 504})  # answers that another try may change


class HttpError(Exception):
    """A GET that failed. One line: what, where, what to do. `is_passing` where another try may succeed."""

    def __init__(self, message: str, *, status: int | None = None, is_passing: bool = False, retry_after_s: float = 0) -> None:
        super().__init__(message)
        self.status, self.is_passing, self.retry_after_s = status, is_passing, retry_after_s


@dataclass(frozen=True)
class HttpSource:
    """A server to get from. `url` is without credentials and may be shown."""

    url: str
    _headers: Mapping[str, str] = field(repr=False)
    _opener: OpenerDirector = field(repr=False)
    _secrets: tuple[str, ...] = field(default=(), repr=False)

    def without_secrets(self, text: str) -> str:
        """What a server says, without the credentials it was sent: some repeat them."""
        for secret in self._secrets:
            text = text.replace(secret, "…")
        return text

    def get(self, path: str = "", query: Mapping[str, str] | None = None, *, timeout_s: float = 30) -> bytes:
        """The body of the answer. HttpError where there is none."""
        address = self.url.rstrip("/") + path if path else self.url
        if query:
            address += f"?{urlencode(query)}"
        request = Request(address, headers=dict(self._headers))  # noqa: S310 - http(s) alone, see http_source
        try:
            with self._opener.open(request, timeout=timeout_s) as answer:
                body = answer.read()
                return gzip.decompress(body) if answer.headers.get("Content-Encoding") == "gzip" else body
        except HTTPError as error:
            raise self._refused(error) from None
        except URLError as error:
            raise self._unreachable(error.reason) from None
        except (OSError, HTTPException, EOFError, zlib.error) as error:
            raise self._unreachable(error) from None

    def _refused(self, error: HTTPError) -> HttpError:
        """What an answer with an error status means to the caller."""
        status = error.code
        if status in (401, 403):
            advice = f"it wants credentials; set {BEARER} or {BASIC}" if status == 401 else "these credentials may not read it"
        elif 300 <= status < 400:
            target = urlsplit(error.headers.get("Location", ""))
            advice = f"it points to {target.hostname or 'another page'}; give that address, if it is the right one"
        else:
            advice = self.without_secrets(_said(error))[:200] or "see its log"
        retry_after = error.headers.get("Retry-After", "")
        return HttpError(
            f"{self.url}: answers {status} {self.without_secrets(str(error.reason))}; {advice}",
            status=status,
            is_passing=status in PASSING,
            retry_after_s=float(retry_after) if retry_after.isdecimal() else 0,
        )

    def _unreachable(self, reason: object) -> HttpError:
        """What a connection that failed means to the caller."""
        if isinstance(reason, ssl.SSLCertVerificationError):
            why = f"its certificate is not trusted ({reason.verify_message}); name the authority's PEM file in {CA_FILE}"
            return HttpError(f"{self.url}: {why}")
        if isinstance(reason, socket.gaierror):
            return HttpError(f"{self.url}: no such host; check the name", is_passing=True)
        if isinstance(reason, ConnectionRefusedError):
            return HttpError(f"{self.url}: connection refused; is it running, on that port?", is_passing=True)
        if isinstance(reason, TimeoutError):
            return HttpError(f"{self.url}: no answer in time; is it overloaded, or behind a firewall?", is_passing=True)
        what = getattr(reason, "strerror", None) or type(reason).__name__ if isinstance(reason, Exception) else str(reason)
        return HttpError(f"{self.url}: connection failed ({str(what).lower()}); check the address", is_passing=True)


def http_source(url: str, environ: Mapping[str, str] = os.environ) -> HttpSource:
    """The server at an address, with the credentials of the environment. HttpError where either cannot be used."""
    parts = _checked(url)
    headers = {"Accept-Encoding": "gzip", "User-Agent": "kvpressure"}
    basic = f"{unquote(parts.username)}:{unquote(parts.password or '')}" if parts.username else environ.get(BASIC)
    token = environ.get(BEARER, "").strip()
    if basic:
        headers["Authorization"] = f"Basic {base64.b64encode(basic.encode()).decode()}"
    elif token:
        if not token.isprintable() or not token.isascii():
            raise HttpError(f"{BEARER}: not a token (it has line breaks or letters beyond ASCII); set it again")
        headers["Authorization"] = f"Bearer {token}"
    try:
        context = ssl.create_default_context(cafile=environ.get(CA_FILE) or None)
    except (OSError, ssl.SSLError):
        raise HttpError(f"{CA_FILE}: {environ[CA_FILE]} is no readable PEM file of certificates; correct the path") from None
    host = parts.netloc.rpartition("@")[2]
    shown = urlunsplit((parts.scheme, host, parts.path, "", ""))
    sent = [token, basic or "", (basic or "").partition(":")[2], headers.get("Authorization", "").partition(" ")[2]]
    secrets = {form for each in sent if each for form in (each, quote(each), quote(each, safe=""))}
    opener = build_opener(HTTPSHandler(context=context), _NoRedirect())
    return HttpSource(shown, headers, opener, tuple(sorted(secrets, key=len, reverse=True)))


def _checked(url: str) -> SplitResult:
    """The parts of an http(s) address; the message of the fault does not repeat what may be a password."""
    with suppress(ValueError):
        parts = urlsplit(url if "//" in url else f"http://{url}")
        _ = parts.port
        if parts.scheme in ("http", "https") and parts.hostname and url.isprintable() and " " not in url:
            return parts
    raise HttpError("not an address of a server; write it as http://HOST:PORT")


class _NoRedirect(HTTPRedirectHandler):
    def redirect_request(self, *_: object) -> None:  # type: ignore[override]
        """None: the answer itself is then the fault that is raised."""


def _said(error: HTTPError) -> str:
    """What the body says of the fault: the API's own error, or its text; a page made for a browser says nothing."""
    with suppress(OSError, HTTPException, ValueError, AttributeError):
        body = error.read(4096)
        if error.headers.get("Content-Encoding") == "gzip":
            body = zlib.decompressobj(31).decompress(body)
        text = body.decode("utf-8", "replace")
        with suppress(ValueError):
            text = json.loads(text)["error"]
        said = " ".join(str(text).split())
        return "" if said.startswith("<") else said
    return ""

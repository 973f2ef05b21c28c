"""Checks of the addresses of pictures and files in messages, which a model's server fetches.

A model's server fetches what a message points to, from inside its own network. So an address from a user or a tool must
be `https:`, name a public host and hold no credentials. A name is not resolved here: what counts is what the model's
server resolves, later and elsewhere. Names that say by themselves that they are private are refused.
"""

from __future__ import annotations

import re
from binascii import a2b_base64
from collections.abc import Iterable
from ipaddress import IPv4Address
from urllib.parse import urlsplit

from wick._internal.http_requests import is_public_address
from wick._internal.printable import escape_controls
from wick.constants import MEDIA_CHARS, MEDIA_URL_CHARS
from wick.messages import AudioPart, ImagePart, MediaPart, Message, Part, TextPart

_HOST = re.compile(r"(?=.{1,253}\Z)(?:(?!-)[a-z0-9_-]{1,63}(?<!-)\.)+(?!-)[a-z0-9-]{2,63}(?<!-)")
_PRIVATE = re.compile(
    r"(?:.+\.)?(?:localhost|localdomain|local|internal|intranet|private|lan|home|corp|arpa|test|invalid|onion|alt"
    r"|localtest\.me|lvh\.me|vcap\.me|lacolhost\.com|nip\.io|sslip\.io|xip\.io)"
)
_INSIDE = re.compile(r"(?<![0-9])([0-9]{1,3})[.-]([0-9]{1,3})[.-]([0-9]{1,3})[.-]([0-9]{1,3})(?![0-9])")
_DATA = re.compile(r"data:([\w.+-]+/[\w.+-]+)(?:;[\w.+-]+=[\w.+-]+)*;base64,", re.IGNORECASE)
_TYPE = re.compile(r"[\w.+-]+/[\w.+-]+(?:; ?[\w.+-]+=[\w.+-]+)*")


def media_problem(part: Part) -> str:
    """Return why a picture or a file from outside is refused, or an empty text."""
    if isinstance(part, TextPart):
        return ""
    if part.media_type and not (len(part.media_type) <= 200 and _TYPE.fullmatch(part.media_type)):
        return f"{_shorten(part.media_type)} is not a media type; use one like image/png"
    if part.data:
        return _data_problem(part.data)
    if found := _DATA.match(part.url):
        return _data_problem(part.url[found.end() :])
    return address_problem(part.url)


def address_problem(url: str) -> str:
    """Return why a model's server is not asked to fetch an address, or an empty text."""
    shown = _shorten(url)
    if len(url) > MEDIA_URL_CHARS:
        return f"an address of a picture or a file has at most {MEDIA_URL_CHARS:,} characters"
    if not url.isprintable() or " " in url or "\\" in url:
        return f"the address {shown} has blanks, control characters or backslashes; encode them with %"
    try:
        parts = urlsplit(url)
        host, port = (parts.hostname or "").lower(), parts.port
    except ValueError:
        return f"the address {shown} is not well formed; use one like https://example.com/a.png"
    if parts.scheme != "https":
        return f"a picture or a file is a data: URL in base64, or an https: address, not {shown}"
    if "@" in parts.netloc:
        return "the address of a picture or a file holds a user or a password; leave them out"
    if port == 0 or not is_public_host(host):
        return f"the address {shown} is not one of the public internet; send the bytes in base64 instead"
    return ""


def is_public_host(host: str) -> bool:
    """Return True if a host is a public IP address in its usual spelling, or a name that is not private by itself."""
    if ":" in host:
        return "%" not in host and is_public_address(host)
    host = host.removesuffix(".")
    last = host.rpartition(".")[2]
    if re.fullmatch(r"0x[0-9a-f]*|[0-9]+", last):  # an IPv4 address in any notation
        try:
            return str(IPv4Address(host)) == host and is_public_address(host)
        except ValueError:
            return False
    if not _HOST.fullmatch(host) or _PRIVATE.fullmatch(host):
        return False
    return all(is_public_address(".".join(found)) for found in _INSIDE.findall(host))


def check_media(messages: Iterable[Message]) -> str:
    """Return why messages from outside are refused for their pictures and files, or an empty text."""
    for number, message in enumerate(messages):
        parts = () if isinstance(message.content, str) else message.content
        if message.role == "system" and any(not isinstance(part, TextPart) for part in parts):
            return f"message {number} is not accepted: a system message holds text alone"
        if why := next(filter(None, map(media_problem, parts)), ""):
            return f"message {number} is not accepted: {why}"
    return ""


def safe_part(part: Part) -> Part:
    """Return a part of a tool's result, or a note in its place if its address is refused."""
    if isinstance(part, MediaPart) and part.url and (why := media_problem(part)):
        what = {ImagePart: "a picture", AudioPart: "audio"}.get(type(part), "a file")
        return TextPart(f"[{what} is left out: {why}]")
    return part


def _data_problem(data: str) -> str:
    if len(data) > MEDIA_CHARS:
        return f"a picture or a file has at most {MEDIA_CHARS:,} characters of base64"
    try:
        a2b_base64(data, strict_mode=True)
    except ValueError:
        return "the data of a picture or a file is not valid base64; encode its bytes with base64"
    return "" if data else "a picture or a file is empty"


def _shorten(text: str) -> str:
    """Return a text from outside as a sentence shows it: short, on one line, without user and password."""
    bare = re.sub(r"//[^/?#]*@", "//", text.partition("?")[0])
    return escape_controls(bare if len(bare) <= 100 else f"{bare[:100]}…")

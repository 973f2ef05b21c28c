"""Addresses of pictures and files that come from outside."""

from __future__ import annotations

from base64 import b64encode
from ipaddress import IPv4Address, IPv6Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wick.constants import MEDIA_CHARS, MEDIA_URL_CHARS
from wick.messages import FilePart, ImagePart, Message, TextPart, user
from wick.server import media
from wick.server.media import address_problem, check_media, is_public_host, media_problem, safe_part

PUBLIC = (
    "https://example.com/a.png",
    "https://example.com:8443/a.png?x=1#y",
    "https://EXAMPLE.com./a%20b.png",
    "https://sub-domain.example.co.uk/bildü.png",
    "https://xn--bcher-kva.example.org/",
    "https://93.184.216.34/a.png",
    "https://[2606:2800:220:1:248:1893:25c8:1946]/a.png",
    "HTTPS://cdn1.example.com/1.2.3/a.png",
)
PRIVATE_HOSTS = (
    *("127.0.0.1", "127.1", "127.0.1", "0", "0.0.0.0", "2130706433", "017700000001", "0177.0.0.1", "0x7f.0.0.1"),
    *("0x7f000001", "127.0.0.1.", "127.000.000.001", "10.0.0.1", "172.16.5.4", "192.168.1.1", "169.254.169.254"),
    *("100.64.0.1", "224.0.0.1", "255.255.255.255", "256.1.1.1", "1.2.3", "1.2.3.4.5", "198.18.0.1"),
    *("[::1]", "[::]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[fe80::1]", "[fe80::1%25eth0]", "[fd00::1]"),
    *("[64:ff9b::7f00:1]", "[2002:7f00:1::]", "[::127.0.0.1]", "[2001:db8::1]", "[ff02::1]", "[]"),
    *("localhost", "LOCALHOST", "localhost.", "a.localhost", "x.local", "metadata.google.internal", "router.lan"),
    *("x.home.arpa", "x.corp", "x.test", "intranet", "vllm", "x.onion", "localtest.me", "a.localtest.me"),
    *("127.0.0.1.nip.io", "10-0-0-1.sslip.io", "a.192-168-0-1.example.com", "169.254.169.254.example.org"),
    *("%31%32%37.0.0.1", "１２７.０.０.１", "ⓛocalhost", "exa mple.com", "-a.com", "a..com", ".", "..", ".com", "a_b"),
    *("example.com%00.png", "example.com\\@10.0.0.1", "exämple.com", "1.1.1.1 ", "a" * 64 + ".com", "a." * 130 + "com"),
)


@pytest.mark.parametrize("url", PUBLIC)
def test_public_addresses_are_taken(url: str) -> None:
    assert address_problem(url) == "" and media_problem(ImagePart(url=url)) == ""


@pytest.mark.parametrize("host", PRIVATE_HOSTS)
def test_private_hosts_are_refused_in_any_spelling(host: str) -> None:
    why = address_problem(f"https://{host}/a.png")
    assert why and why.isprintable()


@pytest.mark.parametrize(
    "url",
    [
        *(
            "http://example.com/a.png",
            "file:///etc/passwd",
            "file://example.com/a",
            "ftp://example.com/a",
            "//example.com",
        ),
        *("gopher://example.com", "javascript:alert(1)", "https:///a", "https:example.com", "https://", "", "a.png"),
        *(
            "https://user@example.com/",
            "https://user:w0rd@example.com/",
            "https://@example.com/",
            "https://example.com:0/",
        ),
        *("https://example.com:99999/", "https://example.com:x/", "https://[::1/", " https://example.com/"),
        *(
            "https://example.com/\nx",
            "https://example.com/\x1b[31m",
            "https://example.com/\u202e",
            "https:\\\\example.com",
        ),
        *("data:text/html,<b>", "data:;base64,AAAA", "gs://bucket/a", "blob:https://example.com/x", "s3://b/a"),
        "https://example.com/" + "a" * MEDIA_URL_CHARS,
    ],
)
def test_other_addresses_are_refused_in_a_sentence(url: str) -> None:
    why = media_problem(ImagePart(url=url)) if url else address_problem(url)
    assert why and why.isprintable() and "w0rd" not in why


@given(st.ip_addresses())
def test_public_ip_addresses_follow_the_registry(ip: IPv4Address | IPv6Address) -> None:
    host = f"[{ip}]" if ip.version == 6 else str(ip)
    assert ip.is_global or address_problem(f"https://{host}/")
    if isinstance(ip, IPv4Address):
        for odd in (str(int(ip)), hex(int(ip)), f"0{oct(int(ip))[2:]}", ".".join(hex(part) for part in ip.packed)):
            assert not is_public_host(odd)


def test_data_urls_are_base64_of_bounded_size() -> None:
    png = b64encode(b"\x89PNG").decode()
    assert media_problem(ImagePart(data=png)) == "" == media_problem(ImagePart(url=f"data:image/png;base64,{png}"))
    assert "not valid base64" in media_problem(ImagePart(data="a"))
    assert "not valid base64" in media_problem(ImagePart(url="data:image/png;base64,????"))
    assert "at most" in media_problem(FilePart(data="A" * (MEDIA_CHARS + 4)))
    assert "media type" in media_problem(FilePart(data=png, media_type="text/html\r\nx: y"))
    assert media_problem(FilePart(data=png, media_type="text/plain; charset=utf-8")) == ""


def test_a_system_message_holds_text_alone() -> None:
    picture = ImagePart(url=PUBLIC[0])
    assert check_media([user("hello"), user([TextPart("see"), picture])]) == ""
    assert (
        check_media([Message("system", (picture,))]) == "message 0 is not accepted: a system message holds text alone"
    )
    assert check_media([user("a"), user([ImagePart(url="http://10.0.0.1/")])]).startswith("message 1 is not accepted: ")


def test_a_media_link_of_a_tool_becomes_a_note() -> None:
    note = safe_part(FilePart(url="http://169.254.169.254/latest", name="a"))
    assert isinstance(note, TextPart) and note.text.startswith("[a file is left out: a picture or a file is")
    kept = ImagePart(url=PUBLIC[0])
    assert safe_part(kept) is kept and safe_part(TextPart("x")) == TextPart("x")


def test_an_accepted_private_address_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(media, "is_public_host", lambda host: True)
    with pytest.raises(AssertionError):
        test_private_hosts_are_refused_in_any_spelling("127.0.0.1")

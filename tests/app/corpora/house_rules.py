"""Where the router is stricter than a corpus: each rule with the words of the RFC that allow it.

A rule never makes a rejected case acceptable: it turns `accept` into `reject`, or allows a refusal
besides forwarding.
"""

import re

from tests.app.corpora.corpus import Case

# RFC 9110 section 9.3 and RFC 5789; other methods that a server "does not recognize" may get 501
# (9110 9.1).
_METHODS = {b"GET", b"HEAD", b"POST", b"PUT", b"DELETE", b"OPTIONS", b"PATCH"}
_LINE = re.compile(rb"^(?:\r\n)?(?P<method>[^ \r\n]+) (?P<target>[^ \r\n]+) (?P<proto>[^\r\n]*)")

# Single cases whose verdict is another server's practice and not an HTTP rule.
EXCEPTIONS = {
    # RFC 9110 9.3.1: content in a GET may be sent and may be refused. RFC 9112 6.3 frames it like
    # any other content, so forwarding it with its framing and answering both requests is correct.
    "http11probe/SMUG-GET-CL-PREFIX-DESYNC": "must_not_desync",
    # RFC 9110 9.3.7: "A client that generates an OPTIONS request containing content MUST send a
    # valid Content-Type"; the content itself is allowed, framed by RFC 9112 6.3.
    "http11probe/SMUG-OPTIONS-CL-BODY-DESYNC": "must_not_desync",
}


def verdict_of(case: Case) -> str:
    """The verdict that applies to this router."""
    if case.id in EXCEPTIONS:
        return EXCEPTIONS[case.id]
    if case.verdict == "upgrade" and not case.data.startswith(b"CONNECT "):
        # RFC 9110 7.8: a server may ignore the upgrade; the request then has its stated length.
        return "must_not_desync"
    if case.verdict in ("upgrade", "pause"):
        # RFC 9110 9.3.6: the router opens no tunnels; RFC 9113 3.4: nor does it speak HTTP/2.
        return "reject"
    if case.verdict not in ("accept", "incomplete"):
        return case.verdict
    line = _LINE.match(case.data)
    if line is None:
        return "reject"  # HTTP/0.9: RFC 9112 2.3 only defines HTTP/1.x messages
    method, target, proto = line["method"], line["target"], line["proto"]
    if not re.fullmatch(rb"HTTP/1\.[01]", proto):
        return "reject"  # RFC 9112 2.3: HTTP-name is "HTTP"; ICE and RTSP are not
    head = case.data.partition(b"\r\n\r\n")[0]
    if proto == b"HTTP/1.1" and not re.search(rb"^host:", head, re.IGNORECASE | re.MULTILINE):
        # RFC 9112 3.2: a request without Host gets 400.
        return "reject" if b"\r\n\r\n" in case.data else case.verdict
    if target == b"*" and method != b"OPTIONS":
        return "reject"  # RFC 9112 3.2.4: asterisk-form is for OPTIONS only
    if b"#" in target:
        return "reject"  # RFC 9112 3.2: no form of request-target has a fragment
    if re.match(rb"[a-z]+://[^/]*@", target):
        return "reject"  # RFC 9110 4.2.4: userinfo in a target is to be treated as an error
    if re.search(rb"^transfer-encoding:.*(deflate|gzip)", head, re.IGNORECASE | re.MULTILINE):
        return "reject"  # RFC 9112 6.1: a coding that is not understood gets 501
    if case.verdict == "accept" and (
        method not in _METHODS or re.search(rb'["\\|]', target)  # RFC 3986 2: not URI characters
    ):
        return "reject_preferred"
    return case.verdict

"""Bodies of uploads: multipart forms with one boundary, built by hand."""

EDGE = "edge"
MULTIPART = f"Content-Type: multipart/form-data; boundary={EDGE}"


def part(name: str, data: bytes, *fields: str, filename: str | None = None) -> bytes:
    named = f'form-data; name="{name}"' + (f'; filename="{filename}"' if filename else "")
    lines = "".join(f"{field}\r\n" for field in fields)
    head = f"--{EDGE}\r\nContent-Disposition: {named}\r\n{lines}\r\n"
    return head.encode() + data + b"\r\n"


def form(data: bytes, purpose: str = "batch") -> bytes:
    """The body of an upload with the file as its first part."""
    parts = part("file", data, filename="in.jsonl") + part("purpose", purpose.encode())
    return parts + f"--{EDGE}--\r\n".encode()

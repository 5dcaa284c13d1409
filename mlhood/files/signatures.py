"""The format of a file by its first bytes, for messages about a file that was passed by mistake."""

from __future__ import annotations

# https://en.wikipedia.org/wiki/List_of_file_signatures; the last two are those of text
SIGNATURES = {
    b"\x89PNG": "PNG",
    b"\xff\xd8\xff": "JPEG",
    b"%PDF": "PDF",
    b"PK\x03\x04": "ZIP",
    b"\x1f\x8b": "gzip",
    b"\x89HDF": "HDF5",
    b"\x80\x02": "pickle",
    b"\x80\x04": "pickle",
    b"\x80\x05": "pickle",
    b"\xff\xfe": "UTF-16",
    b"\xfe\xff": "UTF-16",
    b"<": "markup",
    b"{": "JSON",
}


def file_format(data: bytes) -> str | None:
    """Return the name of the format in `SIGNATURES` that a file's first bytes have, or None."""
    return next((name for start, name in SIGNATURES.items() if data.startswith(start)), None)

"""Pictures of students as `data:` addresses: decoded, scaled down to a width of 1,200 pixels and encoded again as PNG.

So neither metadata nor bytes after the end of a picture get through, nor a file that is valid in two formats. All of
that happens in a limited process, where a fault in a decoder finds nothing to take. It takes longer to start than most
pictures take to read, so `prepare` reads those of several pages at once.
"""

from __future__ import annotations

import base64
import io
import warnings
from collections.abc import Collection, Iterable

from mlhood.grading.rpc.limited import IsolatedCallError, run_isolated

FORMATS = {"image/png": "PNG", "image/jpeg": "JPEG"}
MAX_ENCODED = 8 << 20
MAX_PIXELS = 4_000_000
MAX_WIDTH = 1_200
MAX_DATA = 1 << 20
MAX_CACHED = 256  # pictures that were not prepared
MAX_REQUEST = 48 << 20  # bytes
SECONDS = 60.0
TARGET = f"{__name__}:reencoded"

# MIME type and base64, if it is a picture
Picture = tuple[str, object]

_addresses: dict[Picture, str | None] = {}  # None for what is not a picture


def data_uri(picture: Picture) -> str | None:
    """Return a PNG or JPEG as a `data:` address, or None for what is not a picture or too large."""
    if not _may_be_shown(picture):
        return None
    if picture not in _addresses:
        if len(_addresses) >= MAX_CACHED:
            _addresses.clear()
        _addresses.update(_read([picture]) or {picture: None})
    return _addresses[picture]


def prepare(pages: Iterable[Iterable[Picture]]) -> None:
    """Read the pictures of some pages, so that `data_uri` has them, and forget those of earlier pages.

    All are read in one process, the course's own, which are on every page, once. If one picture stops it, each page
    gets its own process, since no student's picture may cost another's.
    """
    _addresses.clear()
    wanted = [dict.fromkeys(filter(_may_be_shown, page)) for page in pages]
    everything = _read(dict.fromkeys(picture for page in wanted for picture in page))
    if everything is not None:
        _addresses.update(everything)
        return
    for page in wanted:
        _addresses.update(_read(page) or dict.fromkeys(page))


def _may_be_shown(picture: Picture) -> bool:
    kind, encoded = picture
    return kind in FORMATS and isinstance(encoded, str) and len(encoded) <= MAX_ENCODED


def _read(pictures: Collection[Picture]) -> dict[Picture, str | None] | None:
    """Return the addresses of pictures, or None if they cannot be read together."""
    decoded = {picture: data for picture in pictures if (data := _decoded(str(picture[1])))}
    if sum(map(len, decoded.values())) > MAX_REQUEST:
        return None
    addresses = dict.fromkeys(pictures)
    if not decoded:
        return addresses
    try:
        pngs = run_isolated(TARGET, [[FORMATS[kind], decoded[kind, data]] for kind, data in decoded], seconds=SECONDS)
    except IsolatedCallError:
        return None
    if not isinstance(pngs, list) or len(pngs) != len(decoded):
        return None
    return addresses | {picture: _address(png) for picture, png in zip(decoded, pngs, strict=True)}


def _decoded(encoded: str) -> bytes:
    """Return the bytes of base64, none if it is not."""
    try:
        return base64.b64decode("".join(encoded.split()), validate=True)
    except ValueError:
        return b""


def _address(png: object) -> str | None:
    if not isinstance(png, bytes) or len(png) > MAX_DATA:
        return None
    return f"data:image/png;base64,{base64.b64encode(png).decode()}"


def reencoded(pictures: list[list]) -> list[bytes | None]:
    """Return pictures, given by format and data, as PNG; None for what is not one. Runs in a limited process."""
    return [_reencoded_or_none(*picture) for picture in pictures]


def _reencoded_or_none(format: str, data: bytes) -> bytes | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # pillow warns of decompression bombs
            png = _reencode(data, format)
    except Exception:  # decoders fail on a hostile picture in any way; the page continues without it
        return None
    return png if len(png) <= MAX_DATA else None


def _reencode(data: bytes, format: str) -> bytes:
    from PIL import Image

    with Image.open(io.BytesIO(data), formats=[format]) as image:
        if image.width * image.height > MAX_PIXELS:
            raise ValueError("too many pixels")
        image.load()
        image.thumbnail((MAX_WIDTH, 4 * MAX_WIDTH))
        rgba = image.convert("RGBA")
    # on white, as notebooks show it: a dark page would hide a transparent picture
    opaque = Image.alpha_composite(Image.new("RGBA", rgba.size, "white"), rgba).convert("RGB")
    # exact if there are at most 256 colours; else as good as the median cut to the eye, in a tenth of its time
    method = Image.Quantize.MEDIANCUT if opaque.getcolors(256) else Image.Quantize.FASTOCTREE
    quantized = opaque.quantize(256, method=method, dither=Image.Dither.NONE)
    stream = io.BytesIO()
    quantized.info.clear()
    quantized.save(stream, "PNG")  # the strongest compression saves a tenth of the bytes and takes five times as long
    return stream.getvalue()

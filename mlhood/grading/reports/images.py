"""Pictures of a student's notebook, drawn anew: what a page shows are pixels that we have encoded ourselves."""

from __future__ import annotations

import base64
import io
import warnings

from PIL import Image

FORMATS = {"image/png": "PNG", "image/jpeg": "JPEG"}
MAX_ENCODED = 8 << 20
MAX_PIXELS = 4_000_000
WIDEST = 1_200
MAX_DATA = 1 << 20


def data_uri(kind: str, encoded: object) -> str | None:
    """A PNG or JPEG of a notebook as a `data:` address, or None for what is no picture or too large.

    Decoded, scaled down to 1,200 pixels and encoded again as PNG, so that neither metadata nor bytes after its end get
    through, nor a file that is two formats at once.

    Args:
        kind: Its MIME type.
        encoded: The picture in base64.
    """
    if kind not in FORMATS or not isinstance(encoded, str) or len(encoded) > MAX_ENCODED:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # pillow warns of pictures that would fill the memory
            png = _drawn_anew(base64.b64decode("".join(encoded.split()), validate=True), FORMATS[kind])
    except Exception:  # a hostile picture makes decoders fail in any way; the page goes on without it
        return None
    return f"data:image/png;base64,{base64.b64encode(png).decode()}" if len(png) <= MAX_DATA else None


def _drawn_anew(data: bytes, form: str) -> bytes:
    with Image.open(io.BytesIO(data), formats=[form]) as image:
        if image.width * image.height > MAX_PIXELS:
            raise ValueError("too many pixels")
        image.load()
        image.thumbnail((WIDEST, 4 * WIDEST))
        drawn = _on_white(image).quantize(256, dither=Image.Dither.NONE)
    packed = io.BytesIO()
    drawn.info.clear()
    drawn.save(packed, "PNG", optimize=True)
    return packed.getvalue()


def _on_white(image: Image.Image) -> Image.Image:
    """On white paper, as notebooks show it: a transparent drawing would be black on black in a dark page."""
    coloured = image.convert("RGBA")
    paper = Image.new("RGBA", coloured.size, "white")
    return Image.alpha_composite(paper, coloured).convert("RGB")

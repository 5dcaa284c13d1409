"""Re-encode the pictures of a student's notebook: a page shows only pixels that we have encoded ourselves."""

from __future__ import annotations

import base64
import io
import warnings

from PIL import Image

FORMATS = {"image/png": "PNG", "image/jpeg": "JPEG"}
MAX_ENCODED = 8 << 20
MAX_PIXELS = 4_000_000
MAX_WIDTH = 1_200
MAX_DATA = 1 << 20


def data_uri(kind: str, encoded: object) -> str | None:
    """Return a PNG or JPEG of a notebook as a `data:` address, or None for what is not a picture or too large.

    It is decoded, scaled down to a width of 1,200 pixels and encoded again as PNG, so that neither metadata nor bytes
    after its end get through, nor a file that is valid in two formats.

    Args:
        kind: Its MIME type.
        encoded: The picture in base64.
    """
    if kind not in FORMATS or not isinstance(encoded, str) or len(encoded) > MAX_ENCODED:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # pillow warns of decompression bombs
            png = _reencode(base64.b64decode("".join(encoded.split()), validate=True), FORMATS[kind])
    except Exception:  # decoders fail on a hostile picture in any way; the page continues without it
        return None
    return f"data:image/png;base64,{base64.b64encode(png).decode()}" if len(png) <= MAX_DATA else None


def _reencode(data: bytes, format: str) -> bytes:
    with Image.open(io.BytesIO(data), formats=[format]) as image:
        if image.width * image.height > MAX_PIXELS:
            raise ValueError("too many pixels")
        image.load()
        image.thumbnail((MAX_WIDTH, 4 * MAX_WIDTH))
        quantized = _on_white(image).quantize(256, dither=Image.Dither.NONE)
    stream = io.BytesIO()
    quantized.info.clear()
    quantized.save(stream, "PNG", optimize=True)
    return stream.getvalue()


def _on_white(image: Image.Image) -> Image.Image:
    """Return the picture on a white background, as notebooks show it: a dark page would hide a transparent one."""
    rgba = image.convert("RGBA")
    background = Image.new("RGBA", rgba.size, "white")
    return Image.alpha_composite(background, rgba).convert("RGB")

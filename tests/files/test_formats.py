from __future__ import annotations

import gzip
import io
import pickle
import zipfile

import pytest
from PIL import Image

from mlhood.files.paths import file_format


def picture(kind: str) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (2, 2)).save(file, kind)
    return file.getvalue()


def archive() -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as members:
        members.writestr("a", "b")
    return file.getvalue()


@pytest.mark.parametrize(
    ("data", "name"),
    [
        (picture("PNG"), "PNG"),
        (picture("JPEG"), "JPEG"),
        (picture("PDF"), "PDF"),
        (archive(), "ZIP"),
        (gzip.compress(b"a"), "gzip"),
        *[(pickle.dumps([1], protocol=protocol), "pickle") for protocol in (2, 4, 5)],
        ("{}".encode("utf-16"), "UTF-16"),
        (b"<html>", "markup"),
        (b'{"cells": []}', "JSON"),
        (b"cells", None),
        (b"", None),
    ],
    ids=lambda value: "data" if isinstance(value, bytes) else str(value),  # some data hold the time
)
def test_formats_as_their_own_libraries_write_them(data, name):
    assert file_format(data) == name

"""The page of an executed notebook: its pictures and their alternative texts."""

from html.parser import HTMLParser

import pytest
from nbformat.v4 import new_code_cell, new_notebook, new_output

from mlhood.notebook_view.github_view import github_page

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


class PictureParser(HTMLParser):
    """Collects the attributes of the pictures of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.pictures: list[dict[str, str | None]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "img":
            self.pictures.append(dict(attrs))


def picture(**metadata: object) -> dict[str, str | None]:
    """Return the attributes of the only picture in the page of a notebook that shows it with this metadata."""
    output = new_output("display_data", {"image/png": PNG, "text/plain": "<Figure>"}, metadata={"image/png": metadata})
    page = github_page(new_notebook(cells=[new_code_cell("plt.show()", outputs=[output])]), "P1")
    parser = PictureParser()
    parser.feed(page)
    (attributes,) = parser.pictures
    return attributes


@pytest.mark.parametrize("text", ["bars: 1 and 2", 'Netron\'s "drawing"', '"><script>alert(1)</script>'])
def test_a_picture_has_its_alternative_text(text):
    attributes = picture(alt=text, width=230)
    assert attributes["alt"] == text
    assert attributes["src"] == f"data:image/png;base64,{PNG}"
    assert attributes["width"] == "230"


@pytest.mark.parametrize("metadata", [{}, {"alt": ""}])
def test_a_picture_without_alternative_text_is_described_as_such(metadata):
    assert picture(**metadata)["alt"] == "No description has been provided for this image"

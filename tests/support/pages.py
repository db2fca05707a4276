"""Reading an HTML page as strictly as no browser does."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from typing import Any, Final

__all__ = ["HtmlPage"]

_VOID: Final = {"meta", "link", "br", "hr", "img", "input"}


class HtmlPage(HTMLParser):
    """A page whose every element ends where it should.

    Args:
        text: the page.

    Attributes:
        elements: of each element its name and attributes, in order.
        ids: all ids; none stands there twice.
        text: what a reader sees, of all elements but scripts and styles.
        code: of each script and style element its attributes and text.
    """

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.ids: set[str] = set()
        self.text = ""
        self.code: list[tuple[str, dict[str, str | None], str]] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert not self._open, self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        assert len(found) == len(attrs), attrs
        self.elements.append((tag, found))
        name = found.get("id")
        if name is not None:
            assert name not in self.ids, name
            self.ids.add(name)
        if tag not in _VOID:
            self._open.append(tag)
        if tag in ("script", "style"):
            self.code.append((tag, found, ""))

    def handle_endtag(self, tag: str) -> None:
        assert self._open, tag
        assert self._open.pop() == tag, self.getpos()

    def handle_comment(self, data: str) -> None:
        raise AssertionError(f"a comment: {data[:80]}")

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] in ("script", "style"):
            tag, attrs, text = self.code.pop()
            self.code.append((tag, attrs, text + data))
        else:
            self.text += data

    @property
    def figures(self) -> dict[str, Any]:
        """The figures in it, by id."""
        return {
            str(attrs["id"]): json.loads(text)
            for tag, attrs, text in self.code
            if tag == "script" and attrs.get("type") == "application/json"
        }

    @property
    def scripts(self) -> list[str]:
        """The scripts that a browser would run."""
        return [text for tag, attrs, text in self.code if tag == "script" and "type" not in attrs]

"""A small canvas for SVG pictures in a light and a dark version.

Colours are names of roles, such as "accent", so that one drawing gives both versions. Widths of text are estimated:
a monospaced character is 0.6 em wide, a proportional one 0.56 em on average.
"""

from __future__ import annotations

import textwrap
from dataclasses import dataclass, field
from xml.sax.saxutils import escape

WIDTH = 440  # natural width; at 390 px the smallest text is still about 10 px
MONO = "ui-monospace,SFMono-Regular,Menlo,Consolas,monospace"
SANS = "system-ui,-apple-system,'Segoe UI',Roboto,'Helvetica Neue',Arial,sans-serif"
MONO_EM, SANS_EM = 0.6, 0.56

# Text roles reach a contrast of at least 4.5 on "paper" and on the fills they are used with.
THEMES = {
    "light": {
        "paper": "#ffffff",
        "ink": "#1c1917",
        "muted": "#57534e",
        "line": "#a8a29e",
        "cell": "#f5f5f4",
        "accent": "#9a3412",
        "accent-fill": "#ffedd5",
        "second": "#1d4ed8",
        "second-fill": "#dbeafe",
        "third": "#166534",
        "third-fill": "#dcfce7",
    },
    "dark": {
        "paper": "#1c1917",
        "ink": "#f5f5f4",
        "muted": "#c7c2be",
        "line": "#78716c",
        "cell": "#292524",
        "accent": "#fdba74",
        "accent-fill": "#4a2511",
        "second": "#93c5fd",
        "second-fill": "#1e3a5f",
        "third": "#86efac",
        "third-fill": "#14432a",
    },
}


def text_width(text: str, size: float, *, mono: bool = False) -> float:
    """Return the estimated width of `text` in pixels."""
    return len(text) * size * (MONO_EM if mono else SANS_EM)


def show_token(token: bytes) -> str:
    r"""Return a token as readable text: a space becomes ␣, a newline ⏎, and bytes that are not UTF-8 are escaped.

    >>> show_token(b" low"), show_token(b"a\n")
    ('␣low', 'a⏎')
    """
    visible = token.decode("utf-8", "backslashreplace")
    return visible.replace(" ", "␣").replace("\n", "⏎")


@dataclass
class Picture:
    """A picture under construction. Coordinates are pixels, with y downwards."""

    title: str
    description: str
    width: int = WIDTH
    height: float = 0
    _parts: list[str] = field(default_factory=list)

    def _reach(self, right: float, bottom: float) -> None:
        if right > self.width + 0.5:
            raise ValueError(f"{self.title}: something ends at x={right:.0f}, right of the width {self.width}")
        self.height = max(self.height, bottom)

    def rect(
        self, x: float, y: float, width: float, height: float, *, fill: str = "cell", line: str = "line", r: float = 3
    ) -> None:
        """Draw a rectangle with rounded corners; `line` may be "none"."""
        self._reach(x + width, y + height)
        stroke = "" if line == "none" else f' stroke="{{{line}}}"'
        self._parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="{r:g}" fill="{{{fill}}}"{stroke}/>'
        )

    def text(
        self,
        x: float,
        y: float,
        text: str,
        *,
        size: float = 13,
        colour: str = "ink",
        anchor: str = "start",
        mono: bool = False,
        bold: bool = False,
    ) -> None:
        """Write one line with its baseline at `y`; `anchor` is "start", "middle" or "end"."""
        width = text_width(text, size, mono=mono)
        left = {"start": x, "middle": x - width / 2, "end": x - width}[anchor]
        if left < -0.5:
            raise ValueError(f"{self.title}: {text!r} begins at x={left:.0f}")
        self._reach(left + width, y + size * 0.4)
        look = f' font-family="{MONO}"' if mono else ""
        look += ' font-weight="600"' if bold else ""
        look += "" if anchor == "start" else f' text-anchor="{anchor}"'
        content = escape(text).replace("{", "{{").replace("}", "}}")
        self._parts.append(
            f'<text x="{x:g}" y="{y:g}" font-size="{size:g}" fill="{{{colour}}}"{look} xml:space="preserve">'
            f"{content}</text>"
        )

    def prose(self, x: float, y: float, text: str, *, size: float = 12, colour: str = "muted") -> float:
        """Write a paragraph, wrapped to the width of the picture, and return the y of the next line."""
        for line in textwrap.wrap(text, int((self.width - x - 8) / (size * SANS_EM))):
            self.text(x, y, line, size=size, colour=colour)
            y += size * 1.35
        return y

    def line(self, x1: float, y1: float, x2: float, y2: float, *, colour: str = "line", dashed: bool = False) -> None:
        """Draw a straight line."""
        self._reach(max(x1, x2), max(y1, y2))
        dash = ' stroke-dasharray="4 3"' if dashed else ""
        self._parts.append(
            f'<line x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}" stroke="{{{colour}}}" stroke-width="1.5"{dash}/>'
        )

    def arrow(self, x1: float, y1: float, x2: float, y2: float, *, colour: str = "line") -> None:
        """Draw a horizontal or vertical line with a head at its end."""
        self.line(x1, y1, x2, y2, colour=colour)
        if x1 == x2:
            back = -6 if y2 > y1 else 6
            head = f"{x2:g},{y2:g} {x2 - 4:g},{y2 + back:g} {x2 + 4:g},{y2 + back:g}"
        else:
            back = -6 if x2 > x1 else 6
            head = f"{x2:g},{y2:g} {x2 + back:g},{y2 - 4:g} {x2 + back:g},{y2 + 4:g}"
        self._parts.append(f'<polygon points="{head}" fill="{{{colour}}}"/>')

    def triangle(self, x: float, y: float, *, colour: str = "accent", size: float = 5) -> None:
        """Draw a small triangle that points up to (x, y)."""
        self._reach(x + size, y + size * 1.6)
        points = f"{x:g},{y:g} {x - size:g},{y + size * 1.6:g} {x + size:g},{y + size * 1.6:g}"
        self._parts.append(f'<polygon points="{points}" fill="{{{colour}}}"/>')

    def chip(
        self, x: float, y: float, text: str, *, fill: str = "cell", colour: str = "ink", line: str = "line"
    ) -> float:
        """Draw a boxed monospaced text with its top left corner at (x, y); return its width."""
        width = text_width(text, 13, mono=True) + 10
        self.rect(x, y, width, 22, fill=fill, line=line)
        self.text(x + width / 2, y + 15.5, text, mono=True, anchor="middle", colour=colour)
        return width

    def render(self, theme: str) -> str:
        """Return the SVG file of a theme."""
        height = round(self.height + 8)
        body = "\n".join(self._parts).format(**THEMES[theme])
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {height}" width="{self.width}" '
            f'height="{height}" role="img" font-family="{escape(SANS)}">\n'
            f"<title>{escape(self.title)}</title>\n<desc>{escape(self.description)}</desc>\n"
            f'<rect width="{self.width}" height="{height}" fill="{THEMES[theme]["paper"]}" rx="6"/>\n'
            f"{body}\n</svg>\n"
        )

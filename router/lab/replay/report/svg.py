"""Writes a matplotlib figure as inline SVG, which uses the page's colours and loads nothing.

Colours of a figure are placeholders (`INK`, `series(0)`, ...). The placeholders become CSS
variables of the page, so one drawing works in light and dark mode. IDs are made unique, and
everything that refers to a host is removed. The same figure gives the same text. Must never: import
matplotlib before something is drawn.
"""

from __future__ import annotations

import re
from html import escape
from importlib.util import find_spec
from io import StringIO
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Placeholder colours, which figures use for nothing else. Each stands for a CSS variable of the
# page.
INK, FAINT, LINE, PAPER = "#010101", "#010102", "#010103", "#010104"
_NAMES = {INK: "ink", FAINT: "faint", LINE: "line", PAPER: "paper"}
SERIES = 8  # number of colours for policies; the page defines --s0 to --s7
_SERIES = {f"#0102{n:02x}": f"s{n}" for n in range(SERIES)}

_STYLE: Any = {
    # Text is written as text, not as outlines: it is smaller, and screen readers can read it.
    "svg.fonttype": "none",
    "text.parse_math": False,  # a dollar sign in a name begins no formula
    "font.size": 10,
    "text.color": INK,
    "axes.labelcolor": FAINT,
    "axes.edgecolor": LINE,
    "axes.facecolor": "none",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "grid.color": LINE,
    "grid.linewidth": 0.6,
    "xtick.color": LINE,
    "ytick.color": LINE,
    "xtick.labelcolor": FAINT,
    "ytick.labelcolor": FAINT,
    "legend.frameon": False,
    "lines.linewidth": 1.8,
}


def can_draw() -> bool:
    """Whether matplotlib is installed."""
    return find_spec("matplotlib") is not None


def series(number: int) -> str:
    """Return the colour of a policy by its number; the colours repeat after `SERIES` policies."""
    return f"#0102{number % SERIES:02x}"


def figure(width_in: float, height_in: float) -> Figure:
    """Return an empty figure. Global state of matplotlib is not used."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(_STYLE):
        return Figure((width_in, height_in), layout="constrained", facecolor="none")


def style() -> Any:
    """Return a context manager in which axes are created and drawn in the page's style."""
    from matplotlib import rc_context

    return rc_context(_STYLE)


def inline(drawn: Figure, name: str, description: str) -> str:
    """Return the figure as an <svg> element. `name`: letters only, unique on the page."""
    from matplotlib import rc_context

    out = StringIO()
    with rc_context({**_STYLE, "svg.hashsalt": name}):
        drawn.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    text = out.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>\s*", "", text, flags=re.DOTALL)
    text = re.sub(r"<!--.*?-->\s*", "", text, flags=re.DOTALL)
    text = re.sub(r"\sxmlns(:\w+)?=\"[^\"]*\"", "", text)
    text = text.replace("xlink:href=", "href=")
    # Remove style elements, because they would apply to the whole page. The page's own style sheet
    # has the same rules.
    text = re.sub(r"<defs>\s*<style.*?</style>\s*</defs>\s*", "", text, flags=re.DOTALL)
    text = re.sub(r"font-family: [^;\"]*;? ?", "", text)
    text = _colours(text)
    text = _ids(text, name)
    text = re.sub(
        r"<svg\b[^>]*?(viewBox=\"[^\"]*\")[^>]*>", rf"<svg {_role(description)} \1>", text
    )
    return text.strip()


def _role(description: str) -> str:
    return f'role="img" aria-label="{escape(description)}"'.replace("\\", r"\\")


def _colours(text: str) -> str:
    for colour, name in (_NAMES | _SERIES).items():
        text = text.replace(colour, f"var(--{name})")
    return text


def _ids(text: str, name: str) -> str:
    """Add the figure's name to IDs that are referenced, and remove all other IDs."""
    used = set(re.findall(r"(?:url\(#|href=\"#)([^)\"]+)", text))

    def renamed(found: re.Match[str]) -> str:
        return f' id="{name}-{found[1]}"' if found[1] in used else ""

    text = re.sub(r"\sid=\"([^\"]*)\"", renamed, text)
    text = re.sub(r"url\(#([^)]+)\)", rf"url(#{name}-\1)", text)
    return re.sub(r"href=\"#([^\"]+)\"", rf'href="#{name}-\1"', text)

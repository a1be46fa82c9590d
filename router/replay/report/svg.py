"""A matplotlib figure as SVG inside a page: it follows the page's colours and fetches nothing.

Colours of a figure are names (`INK`, `series(0)`, ...) that become CSS variables of the page, so
that one drawing serves light and dark. Ids are made unique, and everything that names a host is
left out. Same figure, same text. Must never: import matplotlib before it is asked to draw.
"""

from __future__ import annotations

import re
from html import escape
from importlib.util import find_spec
from io import StringIO
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Colours that no figure uses otherwise; each stands for a variable of the page.
INK, FAINT, LINE, PAPER = "#010101", "#010102", "#010103", "#010104"
_NAMES = {INK: "ink", FAINT: "faint", LINE: "line", PAPER: "paper"}
SERIES = 8  # colours for policies; the page defines --s0 to --s7
_SERIES = {f"#0102{n:02x}": f"s{n}" for n in range(SERIES)}

_STYLE: Any = {
    "svg.fonttype": "none",  # text stays text: smaller, and a screen reader reads it
    "text.parse_math": False,  # a dollar in a name is a dollar
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
    """The colour of a policy; they come round again after eight."""
    return f"#0102{number % SERIES:02x}"


def figure(width_in: float, height_in: float) -> Figure:
    """An empty figure, without any global state."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(_STYLE):
        return Figure((width_in, height_in), layout="constrained", facecolor="none")


def style() -> Any:
    """A context in which axes are made and drawn in the page's style."""
    from matplotlib import rc_context

    return rc_context(_STYLE)


def inline(drawn: Figure, name: str, description: str) -> str:
    """The figure as an <svg> element; `name` is its own on the page, of letters only."""
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
    # The page's own rules say these, and would be changed by a style element in the middle of it.
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
    """Ids that something refers to get the figure's name in front, the others go."""
    used = set(re.findall(r"(?:url\(#|href=\"#)([^)\"]+)", text))

    def renamed(found: re.Match[str]) -> str:
        return f' id="{name}-{found[1]}"' if found[1] in used else ""

    text = re.sub(r"\sid=\"([^\"]*)\"", renamed, text)
    text = re.sub(r"url\(#([^)]+)\)", rf"url(#{name}-\1)", text)
    return re.sub(r"href=\"#([^\"]+)\"", rf'href="#{name}-\1"', text)

"""Writes a report as one HTML page: plots as PNG images, then the texts that the command prints.

Every text is escaped. Plots need matplotlib; without it, the page says what to install. Must never:
load or link anything from another host.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from html import escape
from importlib.util import find_spec
from io import BytesIO
from math import inf
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_CSS: Final = """\
body { margin: 1rem auto; max-width: 76rem; padding: 0 1rem; font: 1rem/1.5 sans-serif; }
h1, h2 { line-height: 1.25; overflow-wrap: anywhere; }
p { margin: .4rem 0; max-width: 60rem; overflow-wrap: anywhere; }
pre { overflow-x: auto; font-size: .8125rem; }
img { max-width: 100%; height: auto; }
"""
# The colours of Okabe and Ito, which are safe for colour-blind readers.
COLOURS: Final = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#6b6b6b")
_WIDTH_IN: Final = 10.0
_DPI: Final = 110


class Plot(NamedTuple):
    title: str
    caption: str
    figure: Figure


def page(
    title: str,
    plots: Callable[[], Iterable[Plot]],
    parts: Iterable[tuple[str, str | Sequence[str]]],
) -> str:
    """Return the whole file.

    `parts`: a heading and either a table as plain text, or lines of prose. Parts without text are
    left out.
    """
    if find_spec("matplotlib") is None:
        drawn = "<p>Plots need matplotlib: <code>pip install '.[lab]'</code></p>\n"
    else:
        with style():
            drawn = "".join(map(_drawn, plots()))
    texts = "".join(f"<h2>{escape(head)}</h2>\n{_text(part)}" for head, part in parts if part)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>\n{_CSS}</style>\n</head>\n<body>\n"
        f"<h1>{escape(title)}</h1>\n{drawn}{texts}</body>\n</html>\n"
    )


def figure(height_in: float) -> Figure:
    """Return an empty figure of the page's width. Global state of matplotlib is not used."""
    from matplotlib.figure import Figure

    return Figure((_WIDTH_IN, height_in), layout="constrained")


def from_zero(axes: Any) -> None:
    """Begin the y axis at zero, with room above the highest value, after all values are drawn."""
    top = axes.dataLim.y1
    axes.set_ylim(0, 1.05 * top if 0 < top < inf else 1)


def style() -> AbstractContextManager[None]:
    """Return a context in which axes are created and drawn in the page's style."""
    from cycler import cycler
    from matplotlib import rc_context

    dashes = ("-", "--", ":", "-.", "-", "--", ":")
    look: Any = {
        "text.parse_math": False,  # a dollar sign in a name begins no formula
        "axes.prop_cycle": cycler(color=COLOURS, linestyle=dashes),
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "axes.axisbelow": True,
        "grid.alpha": 0.4,
    }
    return rc_context(look)


def _drawn(plot: Plot) -> str:
    out = BytesIO()
    plot.figure.savefig(out, format="png", dpi=_DPI, metadata={"Software": None})
    image = b64encode(out.getvalue()).decode()
    return (
        f"<h2>{escape(plot.title)}</h2>\n"
        f'<img alt="{escape(plot.title)}" src="data:image/png;base64,{image}">\n'
        f"<p>{escape(plot.caption)}</p>\n"
    )


def _text(part: str | Sequence[str]) -> str:
    if isinstance(part, str):
        # The box of a wide table scrolls; `tabindex` makes it reachable by keyboard.
        return f'<pre tabindex="0">{escape(part)}</pre>\n'
    return "".join(f"<p>{escape(line)}</p>\n" for line in part)

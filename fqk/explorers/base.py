"""What all explorers share: one ES module for JupyterLab and for a static page, and their state in both."""

import base64
import json
from pathlib import Path
from typing import Any

import anywidget
import numpy as np
import traitlets
from numpy.typing import ArrayLike

from fqk.figures import COLOURS, FUTURE, GREY, PAST

FOLDER = Path(__file__).parent
STYLE = (FOLDER / "explorers.css").read_text()
PALETTE = {
    "past": PAST,
    "future": FUTURE,
    "below_past": "#56B4E9",  # values below zero, as in figures.mixing_matrix
    "below_future": "#F0E442",
    "grey": GREY,
    "family": COLOURS,
}


def module(name: str) -> str:
    """The ES module of an explorer: the palette, ``common.js`` and ``<name>.js`` in one.

    One text and no import, since a page opened from disk may not load its neighbours as modules.
    """
    parts = [(FOLDER / file).read_text() for file in ("common.js", f"{name}.js")]
    return "\n".join([f"const COLOURS = {json.dumps(PALETTE)};", *parts])


def packed(array: ArrayLike, dtype: str) -> str:
    """An array of numbers as base64 of its little-endian bytes, in C order; ``unpacked`` in common.js."""
    return base64.b64encode(np.asarray(array).astype(np.dtype(dtype).newbyteorder("<")).tobytes()).decode()


class Explorer(anywidget.AnyWidget):
    """A widget that also works on a page without a kernel, its state inlined beside its module.

    ``data`` is what is shown and does not change; every other trait of a subclass is a control's value,
    which Python reads and sets as the reader does.
    """

    _css = STYLE
    data = traitlets.Dict().tag(sync=True)

    def state(self) -> dict[str, Any]:
        """All that the module is given: ``data`` and the controls' values."""
        inherited = set(anywidget.AnyWidget.class_trait_names(sync=True))
        return {
            name: getattr(self, name)
            for name in self.trait_names(sync=True)
            if name not in inherited and not name.startswith("_")
        }

    def html(self) -> str:
        """The explorer for a static page: text that the module replaces, the style, the module, its state."""
        state = json.dumps(self.state(), allow_nan=False).replace("<", "\\u003c")
        return (
            f'<div id="fqk-{self.model_id}"><p>This explorer needs JavaScript and, in JupyterLab, a trusted '
            f"notebook.</p></div>\n<style>{self._css}</style>\n"
            f'<script type="module">{self._esm}\n'
            f'render({{ model: inlined({state}), el: document.getElementById("fqk-{self.model_id}") }});'
            f"</script>"
        )

    def _repr_mimebundle_(self, **kwargs: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        bundle, metadata = super()._repr_mimebundle_(**kwargs) or ({}, {})
        return bundle | {"text/html": self.html()}, metadata

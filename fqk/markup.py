"""A Sphinx extension for markup that needs nothing from elsewhere and that a screen reader can follow.

Equations become MathML as the book is built, so that no page loads MathJax; references are items of a list;
and Plotly is loaded where it draws.
"""

from html import escape
from typing import Any

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx
from sphinx.util.math import get_node_equation_number
from sphinx.util.typing import ExtensionMetadata
from sphinx.writers.html5 import HTML5Translator


def inline(writer: HTML5Translator, node: nodes.math) -> None:
    """``$…$`` inside a sentence."""
    writer.body.append(_mathml(node, "inline"))
    raise nodes.SkipNode


def display(writer: HTML5Translator, node: nodes.math_block) -> None:
    """``$$…$$`` on lines of its own, with its number and the anchor that references point to."""
    writer.body.append(writer.starttag(node, "div", CLASS="math"))
    if node["number"]:
        writer.body.append(f'<span class="eqno">({get_node_equation_number(writer, node)})')
        writer.add_permalink_ref(node, "Link to this equation")
        writer.body.append("</span>")
    writer.body.append(_mathml(node, "block") + "</div>\n")
    raise nodes.SkipNode


def _mathml(node: nodes.math | nodes.math_block, display: str) -> str:
    attributes = f'alttext="{escape(node.astext())}"'
    if display == "block":
        attributes += ' tabindex="0"'  # a wide one scrolls on a narrow screen, also by keyboard
    return convert(node.astext(), display=display).replace("<math", f"<math {attributes}", 1)


def citation(writer: HTML5Translator, node: nodes.citation) -> None:
    """An entry of the references: Docutils puts it in a list, but with a role that no list may hold."""
    HTML5Translator.visit_citation(writer, node)
    writer.body[-1] = writer.body[-1].replace("doc-biblioentry", "listitem")


def figures(
    app: Sphinx, page: str, template: str, context: dict[str, Any], tree: nodes.document | None
) -> None:
    """A page with figures loads Plotly, which takes a browser most of a second; the others do not."""
    if "plotly-graph-div" in context.get("body", ""):
        app.add_js_file("plotly.min.js")
        app.add_js_file("figures.js")


def setup(app: Sphinx) -> ExtensionMetadata:
    """Register as ``html_math_renderer: mathml``, for citations, and for each page."""
    app.add_html_math_renderer("mathml", (inline, None), (display, None))
    app.connect("html-page-context", figures)
    app.add_node(nodes.citation, override=True, html=(citation, HTML5Translator.depart_citation))
    return {"parallel_read_safe": True, "parallel_write_safe": True}

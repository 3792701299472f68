"""How Sphinx builds the site: ``make docs``."""

import re
from importlib.metadata import version as installed
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx import addnodes

project = "omkl"
author = project_copyright = "The omkl developers"
version = release = installed("omkl")

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode"]

html_theme = "furo"
html_title = "omkl"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_show_sphinx = False
pygments_dark_style = "monokai"
html_copy_source = False

myst_heading_anchors = 4

autodoc_default_options = {"members": True, "member-order": "bysource"}
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 100
napoleon_google_docstring = False
napoleon_use_rtype = False
napoleon_attr_annotations = False  # signatures show the types
napoleon_custom_sections = [("Attributes", "params_style")]

# Types that appear in signatures and are no part of the interface.
nitpick_ignore_regex = [
    ("py:class", r"omkl\.(errors|node\.runtime|registry)\.T"),
    ("py:class", r"omkl\.(methods\.(ensemble\.M|protocol\.S)|learners\.rules\.M|landmarks\.Directions)"),
    ("py:class", r"omkl\.wire\.codec\.Body"),
    ("py:class", r"omkl(_lab)?\.methods\.\w+\.\w+State"),
    ("py:class", r"omkl\.(data\.(encoding|files|sets)|node\.(labels|persistence\.disk))\.\w+"),
    ("py:class", r"omkl_lab\.tuning\.halving\.\w+"),
]

SOURCE = Path(__file__).parent.parent / "src"
INCLUDED = {"src/omkl/wire/FORMAT.md": "wire-format.md", "examples/README.md": "examples.md"}
SHORT = {  # long types of NumPy, and the words for them
    re.compile(r"(numpy\._typing\._array_like\.)?_Buffer \| .*?\[complex \| bytes \| str\]"): "ArrayLike",
    re.compile(r"type\[typing\.Any\] \| numpy\.dtype\[.*?_DTypeDict \| str"): "DTypeLike",
    re.compile(r"(numpy\.)?ndarray\[tuple\[.*?\], (numpy\.)?dtype\[(\[[^\]]*\]|[^][])*\]\]"): "ndarray",
    re.compile(r"omkl\.node\.events\.Scored \| .*?Damaged"): "Event",
}
LITERAL = re.compile(r"(``.*?``)")
BACK = re.compile(r'(?<=id=")(?P<name>[\w.]+)(?P<link>">\n<a class="viewcode-back" href="[^"#]*#)[^"]*(?=">)')


def link_to_included(app: Any, page: str, text: list[str]) -> None:
    """Let links to texts that lie beside what they are about lead to the pages that include them."""
    up = "../" * page.count("/")
    for file, own in INCLUDED.items():
        text[0] = text[0].replace(f"]({up}../{file}", f"]({up}{own}")


def escape(app: Any, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    """Make reStructuredText of docstrings, which are plain text with |v|, gamma* and indented formulas."""
    # An empty comment, or else napoleon takes what stands before a colon for a type.
    out = ["..", ""] if what in ("attribute", "property") else []
    plain = True  # until the first section, where indented paragraphs belong to a name
    literal = False
    for line in lines:
        indented = line.startswith("    ")
        plain = plain and not line.startswith("---")
        literal = plain and (indented or (literal and not line))
        if literal and indented and out and not out[-1] and not _in_literal(out):
            out += ["::", ""]
        out.append(line if literal or line.lstrip().startswith((">>>", "...")) else _escaped(line))
    lines[:] = out


def _in_literal(out: list[str]) -> bool:
    before = next((line for line in reversed(out) if line), "")
    return before.startswith("    ") or before.endswith("::")


def _escaped(line: str) -> str:
    parts = LITERAL.split(line)
    parts[::2] = [re.sub(r"([|*\\]|_(?=\W|$))", r"\\\1", part) for part in parts[::2]]
    return "".join(parts)


def forget_others(app: Any, doctree: nodes.document) -> None:
    """Leave names that are not ours as text: Sphinx would link ``bytes`` to any attribute of that name."""
    for node in list(doctree.findall(addnodes.pending_xref)):
        if node.get("refdomain") == "py" and not node["reftarget"].startswith("omkl."):
            node.replace_self(nodes.inline("", node["reftarget"].rpartition(".")[2]))


def shorten(app: Any, doctree: nodes.document) -> None:
    """Show the types of attributes that are arrays as a word."""
    for node in list(doctree.findall(addnodes.desc_annotation)):
        if not list(node.findall(addnodes.pending_xref)):
            node.children = [nodes.Text(_short(node.astext()))]


def _short(text: str) -> str:
    text = text.replace("~", "").replace("<factory>", "...")
    for long, word in SHORT.items():
        text = long.sub(word, text)
    return text


def show_source(app: Any, doctree: nodes.document, page: str) -> None:
    """Let links to our files lead to the page of their source, where the site has one, instead of a download."""
    for node in list(doctree.findall(addnodes.download_reference)):
        file = (Path(app.srcdir) / page).parent.joinpath(node["reftarget"]).resolve()
        module = ".".join(file.relative_to(SOURCE).with_suffix("").parts) if file.is_relative_to(SOURCE) else ""
        if app.builder.format == "html" and getattr(app.env, "_viewcode_modules", {}).get(module):
            target = app.builder.get_relative_uri(page, f"_modules/{module.replace('.', '/')}")
            node.replace_self(nodes.reference("", "", *node.children, refuri=target, internal=True))


def forget_sourceless(app: Any, env: Any) -> list[str]:
    """Leave modules without Python source out of the list of sources, where they would have no page."""
    known = getattr(env, "_viewcode_modules", {})
    for module in [module for module, entry in known.items() if not entry]:
        del known[module]
    return []


def lead_back(app: Any, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """Let the links of a source page lead to where each name is documented: Sphinx takes one prefix for a module."""
    module = page.removeprefix("_modules/").replace("/", ".")
    if module == page or not (entry := getattr(app.env, "_viewcode_modules", {}).get(module)):
        return
    documented = app.env.get_domain("py").objects

    def led(found: re.Match[str]) -> str:
        name = found["name"]
        here = (full for full, one in documented.items() if one.docname == entry[2][name])
        return name + found["link"] + next(full for full in here if full.endswith(f".{name}"))

    context["body"] = BACK.sub(led, context["body"])


def skip_others(app: Any, what: str, name: str, thing: Any, skip: bool, options: Any) -> bool | None:
    """Leave out what scikit-learn adds to our classes, and fields of a NamedTuple that have no text of their own."""
    is_bare = str(getattr(thing, "__doc__", "")).startswith("Alias for field number")
    return True if is_bare or str(getattr(thing, "__module__", "")).startswith("sklearn") else None


def sign(
    app: Any, what: str, name: str, thing: Any, options: Any, signature: str | None, returned: str | None
) -> tuple[str | None, str | None]:
    """Show no arguments of a protocol, because nobody makes one, and short types of the others."""
    if getattr(thing, "_is_protocol", False):
        return "", ""
    return _short(signature) if signature else signature, _short(returned) if returned else returned


def setup(app: Any) -> None:
    """Connect to Sphinx."""
    app.connect("source-read", link_to_included)
    app.connect("autodoc-skip-member", skip_others)
    app.connect("autodoc-process-signature", sign)
    app.connect("autodoc-process-docstring", escape, priority=100)  # before napoleon
    app.connect("doctree-read", forget_others)
    app.connect("doctree-read", shorten)
    app.connect("doctree-resolved", show_source)
    app.connect("env-updated", forget_sourceless)
    app.connect("html-page-context", lead_back)

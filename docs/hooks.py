"""Hooks of mkdocs: pages from the package, the README as first page, links to the repository."""

import pathlib
import re

import pages
from mkdocs.structure.files import File

README = pathlib.Path(__file__).parent.parent / "README.md"


def on_files(files, config):
    """Add the pages that are written from the package."""
    for path, text in pages.pages().items():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown, page, config, files):
    """Return the text of a page as the site needs it."""
    if page.file.src_uri == "index.md":
        markdown = from_docs(README.read_text(encoding="utf-8"), config.site_url)
    if "\n## " not in markdown and "\n::: " not in markdown:
        # Room for wide tables.
        page.meta["hide"] = ["toc"]
    if "/" in page.file.src_uri:
        return markdown
    # What is in docs/ is a page of the site, everything else a file of the repository.
    return markdown.replace("](../", f"]({config.repo_url}/blob/main/")


def on_page_content(html, page, config, files):
    """Return the HTML of a page with lines that are divided where a reader expects it."""
    html = re.sub(r"(?<=<td)[^<]+(?=</td>)", _whole_numbers, html)
    commands = r'(?<=<div class="language-sh highlight">).*?(?=</div>)'
    html = re.sub(commands, _whole_flags, html, flags=re.DOTALL)
    in_line = _divisible_names if page.file.src_uri == "weight_maps.md" else _whole_flags
    return re.sub(r"(?<=<code>)[^<]+(?=</code>)", in_line, html)


def _whole_numbers(cell):
    """Keep a number, its deviation and its unit in one line."""
    return re.sub(r" (?=±)|(?<=±) |(?<=\d) (?=%)", "\u00a0", cell[0])


def _whole_flags(code):
    """Keep browsers from dividing a flag at its hyphens."""
    return re.sub(r"(?<![^\s>])--?[a-z][\w-]*", r'<span class="flag">\g<0></span>', code[0])


def _divisible_names(code):
    """Names of arrays are too long for a line."""
    return re.sub(r"([/.])(?=\w)", r"\1<wbr>", code[0])


def from_docs(readme, site):
    """Return the README with its links as seen from docs/."""
    readme = re.sub(r"\]\((?!https?:|#|docs/)", "](../", readme)
    readme = re.sub(r"\]\(docs/(?!\S+\.py\))", "](", readme).replace("](docs/", "](../docs/")
    # Pages that only the site has.
    return re.sub(rf"\]\({re.escape(site)}([\w/]+)/\)", r"](\1.md)", readme)

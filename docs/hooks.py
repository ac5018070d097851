"""Hooks of mkdocs: the README is the first page, and links out of docs/ lead to the repository."""

import pathlib
import re

README = pathlib.Path(__file__).parent.parent / "README.md"


def on_page_markdown(markdown, page, config, files):
    """Return the text of a page as the site needs it."""
    if "/" in page.file.src_uri:
        return markdown
    if page.file.src_uri == "index.md":
        markdown = from_docs(README.read_text(encoding="utf-8"))
    # What is in docs/ is a page of the site, everything else a file of the repository.
    return markdown.replace("](../", f"]({config.repo_url}/blob/main/")


def from_docs(readme):
    """Return the README with its links as seen from docs/."""
    readme = re.sub(r"\]\((?!https?:|#|docs/)", "](../", readme)
    return re.sub(r"\]\(docs/(?!\S+\.py\))", "](", readme).replace("](docs/", "](../docs/")

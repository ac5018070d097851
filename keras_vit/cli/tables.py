"""Tables in text and in Markdown; all columns but the first are numbers."""

from keras_vit.core.text import printable


def plain_table(columns, rows):
    """Return the rows in aligned columns."""
    lines = [list(map(printable, line)) for line in (columns, *rows)]
    first, *others = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join([name.ljust(first), *map(str.rjust, cells, others)]) for name, *cells in lines
    )


def markdown_table(columns, rows):
    """Return the rows as a Markdown table."""
    rule = ["---"] + ["---:"] * (len(columns) - 1)
    return "\n".join(f"| {' | '.join(line)} |" for line in (columns, rule, *rows))

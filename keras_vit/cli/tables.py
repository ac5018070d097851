"""Tables on the terminal and in Markdown; all columns but the first are numbers."""


def plain_table(columns, rows):
    """The rows in aligned columns."""
    lines = [columns, *rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if index == 0 else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        for line in lines
    )


def markdown_table(columns, rows):
    """The rows as a Markdown table."""
    rule = ["---"] + ["---:"] * (len(columns) - 1)
    return "\n".join(f"| {' | '.join(line)} |" for line in (columns, rule, *rows))

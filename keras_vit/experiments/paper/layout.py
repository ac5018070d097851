"""A table of strings with its title and notes, and how results are put into one."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class PaperTable:
    """A table that is ready to be printed.

    Args:
        title: one line.
        columns: titles of the columns.
        rows: tuples of strings.
        notes: lines that stand below the table.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()


def pivot(results, row_of, column_of, missing="-"):
    """Arrange results in rows and columns, in the order in which these appear.

    Args:
        results: rows of the paper, of `PaperResult`.
        row_of: function from a result to the title of its row.
        column_of: function from a result to the title of its column.
        missing: text of a cell without a result.

    Returns:
        `(columns, rows)`: the titles of the columns, and tuples of strings that begin with the
        title of the row. Several results of a cell stand one after the other.

    Example:
    >>> from keras_vit.experiments.paper.positions import TABLE_8
    >>> pivot(TABLE_8[:3], lambda row: row.model, lambda row: row.setting.partition(",")[0], "?")
    (('No Pos. Emb.', '1-D Pos. Emb.'), (('ViT-B/16', '0.61382', '0.64206 / 0.63964'),))
    """
    cells, columns = {}, {}
    for result in results:
        column = column_of(result)
        columns[column] = None
        cells.setdefault(row_of(result), {}).setdefault(column, []).append(str(result))
    rows = (
        (title, *(" / ".join(found.get(column, [missing])) for column in columns))
        for title, found in cells.items()
    )
    return tuple(columns), tuple(rows)

"""Docstrings in Keras's order, as mkdocstrings reads them: an extension of griffe."""

import re
import textwrap

import griffe


class KerasDocstrings(griffe.Extension):
    """Make sections of what Google's style has no sections for."""

    def on_object(self, *, obj, **kwargs):
        """Change the docstring of an object before it is parsed."""
        if obj.docstring is not None:
            text, *example = re.split(r"^Example:\n", obj.docstring.value, flags=re.MULTILINE)
            text = re.sub(r"^Call \w+:\n(?:(?: .*)?(?:\n|$))+", _as_list, text, flags=re.MULTILINE)
            # It is the last section, and not indented.
            parts = [f"Examples:\n{textwrap.indent(part.strip(), '    ')}\n" for part in example]
            text = text + "".join(parts)
            if obj.is_function and obj.returns is not None:
                # Otherwise words before a colon would be taken for the type.
                text = text.replace("\nReturns:\n    ", f"\nReturns:\n    {obj.returns}: ", 1)
            obj.docstring.value = text


def _as_list(match):
    """Return a section whose entries, `name: text`, are the items of a list."""
    return re.sub(r"^ {4}(\w+: )", r"    - \1", match[0], flags=re.MULTILINE)

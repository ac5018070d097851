"""Names of the values of options, for help and errors, without `None`."""

import dataclasses
import difflib
import re
import typing

import tyro.constructors

OPTIONAL_TYPES = tyro.constructors.ConstructorRegistry()
# In words, by the name of the values or by Python's error.
KINDS = {
    "INT": "an integer",
    "INT [INT ...]": "integers",
    "INT|{all} [INT|{all} ...]": "integers, or `all`",
    "FLOAT": "a number",
    "invalid literal for int() with base 10": "an integer",
    "could not convert string to float": "a number",
    # Tyro's error for an option with several values.
    "Could not find valid parse for arguments": "numbers",
}
# Types that are being resolved: `_without_none` leaves them out, so that it does not call itself.
_asked = []


@OPTIONAL_TYPES.primitive_rule
def _without_none(type_info):
    """Parse a type that may be `None` as tyro does, under a plain name."""
    if type(None) not in typing.get_args(type_info.type) or type_info.type in _asked:
        return None
    _asked.append(type_info.type)
    try:
        spec = OPTIONAL_TYPES.get_primitive_spec(type_info)
    finally:
        _asked.remove(type_info.type)
    return dataclasses.replace(spec, metavar=plain_metavar(spec.metavar))


def plain_metavar(metavar):
    """Return tyro's name of the values of an option, without `None` and nested brackets.

    Example:
    >>> plain_metavar("{None}|INT"), plain_metavar("{None}|{[INT [INT ...]]}")
    ('INT', 'INT [INT ...]')
    >>> plain_metavar("{None,int8,int4}")
    '{int8,int4}'
    """
    metavar = metavar.replace("{None}|", "").replace("{None,", "{")
    return re.sub(r"^\{\[(.*)\]\}$", r"\1", metavar)


# What other libraries call a value.
_OTHER_NAMES = {"tflite": "litert", "tf": "saved_model", "hf": "huggingface"}


def plain_error(text):
    """Return a text of tyro that says which values it cannot read, with plain names.

    Example:
    >>> plain_error("Error parsing --steps: no type matching {None}|INT could be instantiated "
    ...             "from ['many']")
    "`--steps` must be an integer. Received: 'many'"
    >>> plain_error("invalid choice 'f' for argument '--dtype'. Expected one of ('None', 'int8')")
    "`--dtype` must be one of int8. Received: 'f'"
    >>> plain_error("invalid choice 'tflite' for argument '--to'. Expected one of ('litert', 'a')")
    "`--to` must be one of a, litert. Received: 'tflite' (did you mean litert?)"
    """
    for wrong in (r"no type matching (.*) could .* from \[(.*)\]", r"([^:]*): \[?('.*')\]?"):
        if found := re.match(rf"Error parsing (\S+): {wrong}$", text):
            name, kind, given = found.groups()
            kind = plain_metavar(kind)
            if kind in KINDS:
                return f"`{name}` must be {KINDS[kind]}. Received: {given}"
    if found := re.match(r"invalid choice (.*) for argument '(.*)'\. Expected .* \((.*)\)", text):
        given, name, choices = found.groups()
        known = sorted(set(re.findall(r"'([^']*)'", choices)) - {"None"})
        hint = _nearest(given.strip("'"), known)
        return f"`{name}` must be one of {', '.join(known)}. Received: {given}{hint}"
    return text


def _nearest(word, known):
    other = [_OTHER_NAMES[word]] if _OTHER_NAMES.get(word) in known else []
    nearest = other or difflib.get_close_matches(word, known, n=1)
    return f" (did you mean {nearest[0]}?)" if nearest else ""

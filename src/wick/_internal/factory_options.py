"""Options of a factory: a class or function that a file or a spec calls with keyword arguments."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from typing import Any, get_type_hints

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError
from pydantic_core import SchemaError

from wick._internal.familiar_words import CONFIG_KEYS
from wick.errors import ConfigError


def read_hints(kind: Callable[..., Any]) -> dict[str, tuple[inspect.Parameter, Any]]:
    """Return the parameters of a class or function by name, each with its type."""
    known = get_type_hints(kind.__init__ if isinstance(kind, type) else kind)  # type: ignore[misc]
    parameters = inspect.signature(kind).parameters.values()
    named = [parameter for parameter in parameters if parameter.kind is not inspect.Parameter.VAR_KEYWORD]
    return {parameter.name: (parameter, known.get(parameter.name, Any)) for parameter in named}


def validate_options(kind: Callable[..., Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a factory, converted to the types of its parameters.

    Raise a ConfigError for an unknown option, and for a value of another type. A type that pydantic does not know
    is not checked.
    """
    hints, parameters = read_hints(kind), inspect.signature(kind).parameters.values()
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    known = {name: hint for name, (parameter, hint) in hints.items() if parameter.kind in named}
    is_open = any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters)
    for key in options:
        if key not in known and not is_open:
            hint = suggest_key(key, known, "the options are") if known else "it has no options"
            raise ConfigError(f"there is no option {key!r}; {hint}")
    return {key: _convert_option(key, value, known.get(key, Any)) for key, value in options.items()}


def _convert_option(key: str, value: Any, hint: Any) -> Any:
    try:
        adapter = TypeAdapter[Any](hint, config=ConfigDict(arbitrary_types_allowed=True))
    except PydanticUserError:  # a pydantic model has a config of its own
        adapter = TypeAdapter(hint)
    except (SchemaError, TypeError):
        return value
    try:
        return adapter.validate_python(value)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        where = ".".join(map(str, (key, *first["loc"])))
        raise ConfigError(f"{where}: {first['msg'][:1].lower()}{first['msg'][1:]}") from None
    except TypeError:  # of a protocol that cannot be checked at runtime
        return value


def suggest_key(word: str, known: Iterable[str], what: str = "the keys are") -> str:
    """Return a hint for an unknown word: the closest known word, or all of them."""
    known = [*known]
    if CONFIG_KEYS.get(word) in known:
        return f"did you mean {CONFIG_KEYS[word]!r}?"
    close = get_close_matches(word, known)
    best = next((name for name in close if name.startswith(word)), close[0] if close else "")
    return f"did you mean {best!r}?" if best else f"{what} {', '.join(known)}"

"""Base class of request models that refuse unknown fields."""

from __future__ import annotations

from typing import Any, Self

from pydantic import BaseModel, ConfigDict, ModelWrapValidatorHandler, ValidationError, model_validator
from pydantic_core import PydanticCustomError

MAX_FAULTS = 100  # errors that are listed one by one


class StrictModel(BaseModel):
    """A request model without extra fields. Very many errors are reported as one: formatting a list would block."""

    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="wrap")
    @classmethod
    def _limit_faults(cls, data: Any, check: ModelWrapValidatorHandler[Self]) -> Self:
        if isinstance(data, dict) and len(data) > len(cls.model_fields) + MAX_FAULTS:
            raise _many_faults(f"it has {len(data):,} fields")
        try:
            return check(data)
        except ValidationError as error:
            if (found := error.error_count()) <= MAX_FAULTS:
                raise
        raise _many_faults(f"it has {found:,} errors")


def _many_faults(faults: str) -> PydanticCustomError:
    """Return an error that holds no reference to the input."""
    return PydanticCustomError("many_faults", "{summary}", {"summary": f"{faults}; /docs has the schema"})

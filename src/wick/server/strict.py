"""What a request says, and nothing else."""

from __future__ import annotations

from typing import Any, Self

from pydantic import BaseModel, ConfigDict, ModelWrapValidatorHandler, ValidationError, model_validator
from pydantic_core import PydanticCustomError

FAULTS = 100  # that are told one by one


class Strict(BaseModel):
    """A shape that takes no other fields. What is wrong in very many ways is told in one: a list would hold up all."""

    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="wrap")
    @classmethod
    def _told_shortly(cls, data: Any, check: ModelWrapValidatorHandler[Self]) -> Self:
        try:
            return check(data)
        except ValidationError as error:
            if (found := error.error_count()) <= FAULTS:
                raise
        told = f"it does not fit in {found:,} places; see /docs for what it may say"
        raise PydanticCustomError("many_faults", "{told}", {"told": told})  # which does not keep all that came

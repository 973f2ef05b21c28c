"""Structured output: the answer fits a schema, or the model gets the validation errors and another attempt."""

from pydantic import BaseModel, Field

from wick import Agent, Scripted, ToolCall
from wick.capabilities.structured_output import StructuredOutput


class Line(BaseModel):
    what: str
    euros: float = Field(gt=0)


class Invoice(BaseModel):
    """An invoice of a customer."""

    number: int
    lines: list[Line]

    @property
    def total(self) -> float:
        return sum(line.euros for line in self.lines)


# A model whose first reply is text, the second has an invalid price, and the third is valid.
model = Scripted(
    "Invoice 17: a pen for 2 euros.",
    ToolCall("1", "final_answer", {"number": 17, "lines": [{"what": "pen", "euros": -2}]}),
    ToolCall("2", "final_answer", {"number": 17, "lines": [{"what": "pen", "euros": 2}]}),
)
result = Agent(model, output_type=Invoice).run_sync("Read this invoice: …")
for message in result.messages:
    if message.name:
        print(message.text)

print(repr(result.output), result.output.total)  # type checkers know that it is an Invoice

# After the last retry the run ends with a reason.
stubborn = Agent(Scripted("No.", "No!"), output_type=StructuredOutput(Invoice, retries=1))
print(stubborn.run_sync("Read this invoice: …").reason)

# prints:
# Your answer was not taken: it is not JSON (expected value at line 1 column 1). Call final_answer.
# final_answer: lines.0.euros should be greater than 0 (got -2)
# Accepted.
# Invoice(number=17, lines=[Line(what='pen', euros=2.0)]) 2.0
# retry limit: no answer fitted after 1 retry: it is not JSON (expected value at line 1 column 1)

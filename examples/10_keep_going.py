"""Send a model back to work until a check passes. Limits still apply."""

from wick import Agent, Continue, Limits, Scripted, Step, Stop, after


@after(Step)
def check_the_haiku(step: Step) -> Continue | None:
    """A step's result is a Stop or a Continue; a hook may replace `completed`, never a stop that a hook decided."""
    if not isinstance(step.result, Stop):
        return None
    lines = step.run.output.last_content.splitlines()
    return None if len(lines) == 3 else Continue(f"A haiku has 3 lines, not {len(lines)}.")


drafts = ("Spring rain.", "Spring rain\non the roof", "Spring rain\non the old roof\na cat listens")
agent = Agent(Scripted(*drafts), hooks=[check_the_haiku])
result = agent.run_sync("Write a haiku.")
for message in result.messages:
    print(f"{message.name or message.role}: {message.text!r}")

strict = Agent(Scripted(*drafts[:2]), hooks=[check_the_haiku, Limits(steps=2)])
print(strict.run_sync("Write a haiku.").reason)

# prints:
# user: 'Write a haiku.'
# assistant: 'Spring rain.'
# check_the_haiku: 'A haiku has 3 lines, not 1.'
# assistant: 'Spring rain\non the roof'
# check_the_haiku: 'A haiku has 3 lines, not 2.'
# assistant: 'Spring rain\non the old roof\na cat listens'
# step limit

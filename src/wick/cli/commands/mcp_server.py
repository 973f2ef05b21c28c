"""An MCP server over stdin and stdout with one tool, `ask`, that runs an agent. It needs the extra `mcp`."""

from __future__ import annotations

from typing import Annotated

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from pydantic import BaseModel, ConfigDict, Field

from wick.cli.host.protocol import AgentHost
from wick.errors import WickError
from wick.events import ToolStart


class AskResult(BaseModel):
    """The agent's answer, and the thread to continue in."""

    model_config = ConfigDict(title="Answer")  # the name in the tool's output schema

    text: str
    thread: str
    outcome: str


async def serve_agent(host: AgentHost) -> None:
    """Serve the agent of a host until stdin is closed."""
    agent = await host.get_agent()
    server = MCPServer(
        f"wick {agent.agent_id}", instructions=f"Send prompts to {agent.name}, a wick agent.", log_level="CRITICAL"
    )

    async def ask(
        prompt: Annotated[str, Field(description="the task or question for the agent")],
        ctx: Context,
        thread: Annotated[str, Field(description="the thread of an earlier answer, to continue it")] = "",
    ) -> AskResult:
        try:
            return await _ask_agent(host, prompt, thread, ctx)
        except WickError as error:
            raise ToolError(str(error)) from None

    server.add_tool(
        ask, description=f"Send a prompt to the agent {agent.name}, which answers and can use its own tools."
    )
    await server.run_stdio_async()


async def _ask_agent(host: AgentHost, prompt: str, thread: str, ctx: Context) -> AskResult:
    run, used = host.start_run(prompt, thread=thread), 0
    async for event in run:
        if isinstance(event, ToolStart):
            used += 1
            await ctx.report_progress(used, message=f"uses {event.name}")
    outcome = await run.get_outcome()
    if outcome.outcome == "failed":
        raise ToolError(outcome.error or outcome.reason)
    more = "" if outcome.outcome == "completed" else f"{outcome.outcome}: {outcome.reason}"
    if outcome.outcome == "interrupted" and (pending := await host.list_approvals(outcome.thread)):
        questions = "; ".join(f"{approval.question} ({approval.id})" for approval in pending)
        more = f"The agent is waiting for its user's answer (see `wick approvals`): {questions}"
    text = "\n\n".join(filter(None, (outcome.text, more)))
    return AskResult(text=text, thread=outcome.thread, outcome=outcome.outcome)

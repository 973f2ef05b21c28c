"""Names of other agent frameworks, each with the sentence that says how wick does it.

The tables answer a wrong guess: an unknown option, attribute or import raises an error with the sentence.
Code that works never reads them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from functools import wraps
from typing import NoReturn, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

_SYSTEM = 'the system prompt is system="…"; for one that depends on the run, set run.system in a @before(Run) hook'
_OUTPUT = "the type of the answer is output_type=…, and result.output has this type"
_HOOKS = (
    "everything around the loop is a hook: hooks=[…], with functions decorated with @before, @wrap, @after or @guard"
)
_GUARDS = "checks are hooks=[…]: @guard(Run) for the input, @guard(ToolUse) for tool calls, @after(Run) for the answer"
_SUBAGENTS = "other agents are hooks=[Subagents(…)], from wick.capabilities"
_THREADS = 'conversations are stored by hooks=[Sessions("./sessions")], and continued by run(…, thread="…")'
_LIMITS = "limits are hooks=[Limits(steps=…, tokens=…), Budget(dollars=…)]"
_RETRIES = "model calls are retried by hooks=[Retry(…)]; a tool reports an error to the model with raise ToolError(…)"
_SETTING = 'settings of the model are settings={"temperature": 0.2, "max_tokens": 500, …}'
_DEPS = "deps are an argument of the run: run(…, deps=…); or give the agent a deps_factory"
_EVENTS = "events come from agent.stream(…), or from the callback run(…, emit=…)"
_APPROVAL = "approvals are a guard that returns Ask(…), answered by the function ask=…, or later with Sessions"
_HISTORY = 'a conversation is continued with thread=result.thread, or thread="…" with hooks=[Sessions(…)]'
_RUN_SYNC = "agent.run_sync(…), or `await agent.run(…)` in async code, returns a result; result.text is its text"
_RUN = "`await agent.run(…)` returns a result; result.text is its text"
_STREAM = "use `async for event in agent.stream(…)`"
_TOOLS = "decorate the function with @tool, and give it to the agent: Agent(model, tools=[…])"
_MESSAGES = "the messages of the run are result.messages; those of the whole conversation are result.thread.messages"
_ANSWER = "the text is result.text; the answer of an agent with output_type=… is result.output"
_AGENT = "an agent is Agent(model, tools=[…], hooks=[…])"


def _spread_names(names: Mapping[str, str]) -> dict[str, str]:
    """Return the sentence of each name, from the names of each sentence."""
    return {name: sentence for sentence, several in names.items() for name in several.split()}


AGENT_OPTIONS = _spread_names(
    {
        _SYSTEM: "instructions system_prompt system_message prompt state_modifier global_instruction instruction",
        _OUTPUT: "result_type response_model response_format output_schema structured_output_model",
        _SETTING: "model_settings generate_content_config temperature max_tokens top_p",
        "tools that belong together are a capability: hooks=[MCP(…)], or your own Capability; others are tools=[…]": (
            "toolsets"
        ),
        "MCP servers are hooks=[MCP({…})], from wick.capabilities": "mcp_servers",
        "capabilities are in the list of hooks: hooks=[…]": "capabilities",
        "plugins are capabilities: hooks=[…]": "plugins",
        _HOOKS: "middleware callbacks hook",
        "this is a hook: @before(Run), in hooks=[…]": "before_agent_callback",
        "this is a hook: @after(Run), in hooks=[…]": "after_agent_callback",
        "this is a hook: @before(ModelCall), in hooks=[…]": "before_model_callback pre_model_hook",
        "this is a hook: @after(ModelCall), in hooks=[…]": "after_model_callback post_model_hook",
        "this is a hook: @before(ToolUse) to change a call, @guard(ToolUse) to refuse it, in hooks=[…]": (
            "before_tool_callback"
        ),
        "this is a hook: @after(ToolUse), in hooks=[…]": "after_tool_callback",
        "these are hooks: @before(Run), in hooks=[…]": "pre_hooks",
        "these are hooks: @after(Run), in hooks=[…]": "post_hooks",
        "these are hooks: @wrap(ToolUse), in hooks=[…]": "tool_hooks",
        _GUARDS: "guards guard guardrails input_guardrails output_guardrails",
        _SUBAGENTS: "handoffs sub_agents subagents members team",
        f"notes that last are hooks=[Memory(…)], from wick.capabilities; {_THREADS}": "memory",
        _THREADS: "storage store db session sessions session_manager session_id checkpointer message_history messages",
        _APPROVAL: "approve approvals interrupt_before interrupt_on human_in_the_loop approver",
        _LIMITS: "usage_limits max_turns max_iterations max_steps recursion_limit tool_call_limit",
        _RETRIES: "retries tool_retries",
        "retries of a typed answer are output_type=StructuredOutput(T, retries=…), from wick.capabilities": (
            "output_retries"
        ),
        "the type of the deps is deps_type=…, and the deps are an argument of the run: run(…, deps=…)": (
            "context_schema"
        ),
        _DEPS: "deps dependencies",
        _EVENTS: "callback_handler verbose debug",
        "spans for OpenTelemetry are always created; install the extra otel and set a tracer provider": "instrument",
        "an agent has a name=…; a Subagent has a description": "description",
        "the model is the first argument: Agent(model)": "llm",
        "long conversations are shortened by hooks=[Summarization(…)], from wick.capabilities": "conversation_manager",
        "give the agent a tool that searches, or hooks=[Context(…)] for texts of the system prompt": "knowledge",
        "skills are hooks=[Skills(…)], from wick.capabilities": "skills",
    }
)

RUN_OPTIONS = _spread_names(
    {
        _HISTORY: "message_history session session_id thread_id conversation_id",
        "messages are the first argument: run([…])": "messages",
        'the input is the first argument: run("…")': "prompt user_prompt",
        'the thread is thread="…", with hooks=[Sessions(…)]; settings of the model are those of the agent': "config",
        "deps are given with deps=…": "context dependencies",
        'the user is user="…"': "user_id",
        "the model belongs to the agent: create another Agent(model), or set run.model in a @before(Run) hook": (
            "model"
        ),
        f"{_SETTING}, of the agent": "model_settings",
        "settings belong to the agent: Agent(model, settings={…})": "settings",
        "tools belong to the agent: agent.with_tools(…).run(…)": "tools toolsets",
        "hooks belong to the agent: agent.with_hooks(…).run(…)": "hooks",
        "the type of the answer belongs to the agent: Agent(model, output_type=…)": "output_type",
        f"{_LIMITS} of the agent": "usage_limits max_turns recursion_limit",
        "events come from agent.stream(…)": "stream",
        "a callback for events is emit=…; hooks belong to the agent": "callbacks",
        "a callback for events is emit=…": "event_stream_handler",
        "the options of a run are deps, thread, user, emit": "run_config",
    }
)

AGENT_ATTRIBUTES = _spread_names(
    {
        _RUN_SYNC: "invoke kickoff execute chat generate query ask_sync predict",
        _RUN: "ainvoke arun invoke_async kickoff_async run_async acall",
        "write print(agent.run_sync(…).text)": "print_response",
        "write print((await agent.run(…)).text)": "aprint_response",
        "for a chat in the terminal, run `wick chat`": "cli_app to_cli_sync to_cli",
        _STREAM: "run_stream run_stream_events run_streamed stream_async astream astream_events run_stream_sync",
        f"{_STREAM}; to act at a step, write a hook": "iter",
        "run them together: asyncio.gather(*(agent.run(text) for text in texts))": "batch abatch",
        _TOOLS: "tool tool_plain",
        "agent.with_tools(…) returns a copy with more tools": "add_tool bind_tools",
        "agent.with_hooks(…) returns a copy with more hooks": "add_hook add_middleware",
        "the system prompt is agent.system; for one that depends on the run, set run.system in a @before(Run) hook": (
            "system_prompt instructions"
        ),
        "validate in the pydantic model of output_type; or with output_type=StructuredOutput(T, validator=f)": (
            "output_validator result_validator"
        ),
        "create the agent with output_type=…": "with_structured_output structured_output",
        "agent.with_options(model=…) returns a copy; Scripted and FunctionModel are for tests": "override",
        "agent.with_tools(…) and agent.with_hooks(…) return copies": "clone",
        _SUBAGENTS: "as_tool",
        "an agent is ready to run; there is nothing to compile": "compile",
        "the state of a conversation is in its thread: result.thread": "get_state",
        "the messages are those of a result: result.messages, or result.thread.messages for the whole conversation": (
            "messages"
        ),
        "a conversation is continued with run(…, thread=result.thread)": "memory",
        "the system prompt is agent.system": "prompt",
        "`wick serve` offers agents over HTTP": "to_a2a",
        "`wick serve` offers agents over HTTP, with a web interface": "to_web",
    }
)

RESULT_ATTRIBUTES = _spread_names(
    {
        _ANSWER: (
            "data final_output final_output_as content response message raw pydantic structured_output "
            "structured_response parsed choices get_output"
        ),
        _MESSAGES: "all_messages new_messages all_messages_json new_messages_json new_items history",
        f"continue the conversation with run(…, thread=result.thread); {_MESSAGES}": "to_input_list",
        "continue the conversation with run(…, thread=result.thread)": "to_state",
        "the price in dollars is result.price": "cost",
        "tokens are in result.usage, the price in dollars is result.price": "metrics",
        "tokens are in result.usage": "token_usage",
        "the end of the run is result.outcome, and result.reason says why": "stop_reason finish_reason status",
        "a run that waits has result.outcome == 'interrupted'; Sessions lists its questions": "interruptions",
        "the conversation is result.thread; a hook reads run.id": "run_id",
        "the id of the conversation is result.thread.id": "thread_id session_id",
    }
)

STREAM_ATTRIBUTES = _spread_names(
    {
        (
            "read the events: `async for event in stream`; text is event.delta of an event with name "
            "on_chat_model_stream"
        ): ("stream_text"),
        "read the events: `async for event in stream`; then stream.result.output is the answer": "stream_output",
        "read the events: `async for event in stream`": "stream_events",
        "`await stream.finish()` returns the result; its output is the answer": "get_output",
        "`await stream.finish()` returns the result": "get_final_message",
        "`await stream.finish()` returns the result; result.text is its text": "text",
        "`await stream.finish()` returns the result; result.output is the answer": "output final_output",
        "the messages are there at the end: stream.result.messages": "messages",
    }
)

PACKAGE_NAMES = _spread_names(
    {
        "an agent runs itself: agent.run_sync(…), or `await agent.run(…)`": "Runner InMemoryRunner AgentExecutor",
        _AGENT: "create_agent create_react_agent create_deep_agent LlmAgent LLMAgent ToolCallingAgent CodeAgent",
        f"there is no graph; {_AGENT}, and hooks act at its steps": "StateGraph",
        _SUBAGENTS: "Team Crew Swarm handoff",
        "decorate a function with @tool, from wick": "function_tool FunctionTool tool_plain BaseTool StructuredTool",
        "tools that belong together are the methods of a Capability that are decorated with @tool": (
            "Toolkit FunctionToolset"
        ),
        "a tool or hook gets the run as a parameter run: Run, and deps as one of type Deps[T]": (
            "RunContext RunContextWrapper"
        ),
        "a tool gets its call as a parameter use: ToolUse, the run as run: Run, and deps as Deps[T]": (
            "ToolContext ToolRuntime"
        ),
        "a tool reports an error to the model with raise ToolError(…), from wick": "ModelRetry",
        _LIMITS: "UsageLimits",
        "write a Capability with methods decorated with @before, @wrap, @after or @guard": (
            "AgentMiddleware AgentHooks HookProvider BasePlugin"
        ),
        "decorate a hook with @before(ModelCall), from wick": "before_model",
        "decorate a hook with @after(ModelCall), from wick": "after_model",
        "decorate a hook with @wrap(ToolUse), from wick": "wrap_tool_call",
        "decorate a hook with @wrap(ModelCall), from wick": "wrap_model_call",
        "decorate a check with @guard(Run), from wick": "input_guardrail",
        "decorate a check with @after(Run), from wick": "output_guardrail",
        "a guard returns Block(…), Ask(…), Stop(…) or None": "GuardrailFunctionOutput",
        "a guard that returns Ask(…) asks the user": (
            "interrupt ApprovalRequired CallDeferred DeferredToolRequests DeferredToolResults"
        ),
        "a hook returns Block(…), Ask(…), Stop(…), Continue(…) or None": "Command",
        'conversations are stored by Sessions("./sessions"), from wick.capabilities': "SQLiteSession Session",
        "models for tests are Scripted and FunctionModel, from wick": "TestModel",
        "a message of the user is user(…), from wick": "HumanMessage UserMessage UserPromptPart",
        "a message of the model is assistant(…), from wick": "AIMessage AssistantMessage",
        "a message of the system is system(…), from wick": "SystemMessage",
        "a message of a tool is tool_message(…), from wick": "ToolMessage",
        "messages are Message objects; user(…), assistant(…) and tool_message(…) create them, from wick": (
            "ModelMessage ModelRequest ModelResponse BaseMessage"
        ),
        "images, recordings and files are ImagePart, AudioPart and FilePart, from wick.messages": (
            "BinaryContent ImageUrl AudioUrl DocumentUrl"
        ),
        "a tool returns a text, JSON data, or a ToolResult, from wick": "ToolReturn",
        "the type of the answer is Agent(model, output_type=…)": "NativeOutput ToolOutput PromptedOutput ToolStrategy",
        "a run returns a Result, from wick": "AgentRunResult RunResult StreamedRunResult",
        _SETTING: "ModelSettings",
    }
)

MODEL_NAMES = _spread_names(
    {
        'write `from wick.models import Anthropic` or Agent("anthropic:…")': "AnthropicModel ChatAnthropic Claude",
        'write `from wick.models import OpenAI` or Agent("openai:…")': (
            "OpenAIModel OpenAIChatModel OpenAIChat ChatOpenAI"
        ),
        'write `from wick.models import OpenAIResponses` or Agent("openai-responses:…")': (
            "OpenAIResponsesModel OpenAIResponse"
        ),
        'write Agent("ollama:MODEL")': "Ollama OllamaModel ChatOllama",
        'a model is given by name: Agent("openai:gpt-4o")': "LiteLLM LiteLlm LitellmModel init_chat_model infer_model",
        'write `from wick.models import Google`, or Agent("google:…")': (
            "Gemini GeminiModel GoogleModel ChatGoogleGenerativeAI"
        ),
        "write `from wick.models import Scripted`": "TestModel",
    }
)

STORE_NAMES = _spread_names(
    {
        "write `from wick.stores import Sqlite`": "SQLite SQLiteStore SqliteStore SqliteDb SqliteSaver SQLiteSession",
        "write `from wick.stores import Postgres`": "PostgresStore PostgresDb PostgresSaver PostgreSQL Postgresql",
        "write `from wick.stores import InMemory`": "Memory MemoryStore InMemoryStore MemorySaver InMemorySaver",
        "the stores are InMemory, Sqlite and Postgres; others implement wick.protocols.Store": (
            "Redis RedisStore FileStore"
        ),
    }
)

BACKEND_NAMES = _spread_names(
    {
        "write `from wick.backends import Local`": "LocalBackend FilesystemBackend LocalShellBackend Folder",
        "write `from wick.backends import Docker`": "DockerBackend Container DockerSandbox Sandbox",
        "write `from wick.backends import State`": "StateBackend InMemory Memory",
    }
)

CAPABILITY_NAMES = _spread_names(
    {
        "write `from wick.capabilities import MCP`": "Mcp MCPServer MCPServerStdio MCPTools McpToolset",
        "write `from wick.capabilities import Sessions`": "Session Checkpointer Persistence",
        "write `from wick.capabilities import Subagents`": "Handoffs Delegation",
        "write `from wick.capabilities import Limits, Budget`": "UsageLimits",
        "write a guard that returns Ask(…), or use Permissions, from wick.capabilities": (
            "HumanInTheLoop Approvals Guardrails"
        ),
        "write `from wick.capabilities import Summarization`": "Compaction ContextEditing",
        "write `from wick.capabilities import Fallback`": "ModelFallback FallbackModel",
        "write `from wick.capabilities import Todos`": "TodoList Planning",
        "write `from wick.capabilities import Critique`": "Reflection Judge",
        "write `from wick.capabilities import Filesystem`": "Shell Bash Files FileSystem",
    }
)

CONFIG_KEYS = _spread_names(  # keys of agents.yaml
    {
        "system_prompt": "instructions instruction system prompt system_message",
        "model": "llm",
        "settings": "temperature max_tokens top_p model_settings",
        "structured_output": "output_type response_format response_model output_schema",
        "mcp": "mcp_servers mcpServers",
        "hooks": "middleware callbacks",
        "permissions": "guardrails allowed_tools",
        "subagents": "handoffs sub_agents",
        "sessions": "session checkpointer storage store db",
        "limits": "max_turns max_steps max_iterations usage_limits",
        "backend": "workspace workdir sandbox",
        "deps": "deps_factory dependencies",
    }
)


def explain_option(owner: str, name: str, known: Iterable[str], words: Mapping[str, str]) -> str:
    """Return the sentence for an option that a function does not have."""
    if name in words:
        return f"{owner} has no option {name}=; {words[name]}"
    options = list(known)
    close = get_close_matches(name, options, n=1)
    hint = f"did you mean {close[0]}=?" if close else f"the options are {', '.join(options)}"
    return f"{owner} has no option {name}=; {hint}"


def explain_options(owner: str, words: Mapping[str, str]) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Return a decorator: a keyword that the function does not have raises a TypeError with a sentence."""

    def decorate(fn: Callable[P, R]) -> Callable[P, R]:
        known = [name for name in inspect.signature(fn).parameters if name != "self"]

        @wraps(fn)
        def call(*args: P.args, **options: P.kwargs) -> R:
            for name in options:
                if name not in known:
                    raise TypeError(explain_option(owner, name, known, words))
            return fn(*args, **options)

        return call

    return decorate


def refuse_attribute(owner: object, name: str, words: Mapping[str, str]) -> NoReturn:
    """Raise the AttributeError of an object without this attribute, with the sentence for a familiar name."""
    kind = type(owner).__name__
    hint = f"; {words[name]}" if name in words else ""
    raise AttributeError(f"{kind!r} object has no attribute {name!r}{hint}", name=name, obj=owner)

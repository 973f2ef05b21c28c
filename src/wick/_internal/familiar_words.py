"""Names of other agent frameworks, each with a sentence about the equivalent in wick.

The tables answer a wrong guess: an unknown option, attribute or import raises an error with the sentence.
Code that works never reads them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import FrozenInstanceError
from difflib import get_close_matches
from functools import wraps
from typing import NoReturn, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")
Kind = TypeVar("Kind", bound=type)

_SYSTEM = 'the system prompt is system="…"; for one that depends on the run, set run.system in a @before(Run) hook'
_OUTPUT = "the type of the answer is output_type=…, and result.output has this type"
_HOOKS = (
    "everything around the loop is a hook: hooks=[…], with functions decorated with @before, @wrap, @after or @guard"
)
_GUARDS = "checks are hooks=[…]: @guard(Run) for the input, @guard(ToolUse) for tool calls, @after(Run) for the answer"
_SUBAGENTS = "other agents are hooks=[Subagents(…)], from wick.capabilities"
_THREADS = 'conversations are stored by hooks=[Sessions("./sessions")], and continued by run(…, thread="…")'
_LIMITS = "limits are hooks=[Limits(steps=…, tokens=…), Budget(dollars=…)]"
_TIMEOUT = "the seconds of a run are hooks=[Limits(seconds=…)] of the agent, and those of a tool @tool(timeout=…)"
_VALIDATOR = "validate in the pydantic model of output_type; or with output_type=StructuredOutput(T, validator=f)"
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
        "questions of the model to the user are hooks=[AskUser()], from wick.capabilities": "ask_user",
        _THREADS: "storage store db session sessions session_manager session_id checkpointer message_history messages",
        _APPROVAL: "approve approvals interrupt_before interrupt_on human_in_the_loop approver",
        _LIMITS: "usage_limits max_turns max_iterations max_steps recursion_limit tool_call_limit budget max_budget",
        _TIMEOUT: "timeout timeout_seconds",
        _VALIDATOR: "validators output_validators result_validators",
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
        "data of a run is in run.scratch, that of a conversation in run.thread.values; neither needs a schema": (
            "state_schema"
        ),
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
        "deps are given with deps=…": "context dependencies invocation_state",
        "this is a hook of the agent: @before(ModelCall), in hooks=[…]": "call_model_input_filter",
        'the user is user="…"': "user_id",
        "the model belongs to the agent: create another Agent(model), or set run.model in a @before(Run) hook": (
            "model"
        ),
        f"{_SETTING}, of the agent": "model_settings",
        "settings belong to the agent: Agent(model, settings={…})": "settings",
        "tools belong to the agent: agent.with_tools(…).run(…)": "tools toolsets",
        "hooks belong to the agent: agent.with_hooks(…).run(…)": "hooks",
        "the type of the answer belongs to the agent: Agent(model, output_type=…)": "output_type",
        f"{_LIMITS} of the agent": "usage_limits max_turns recursion_limit budget",
        _TIMEOUT: "timeout",
        "events come from agent.stream(…)": "stream",
        "a callback for events is emit=…; hooks belong to the agent": "callbacks",
        "a callback for events is emit=…": "event_stream_handler",
        "the options of a run are deps, thread, user, emit": "run_config",
    }
)

TOOL_OPTIONS = _spread_names(
    {
        "approvals are hooks: a function decorated with @guard(ToolUse, match=…) that returns Ask(…)": (
            "requires_approval needs_approval require_approval approval requires_confirmation human_in_the_loop "
            "interrupt_on"
        ),
        _RETRIES: "retries max_retries retry",
        "a tool gets the run as a parameter run: Run, its call as use: ToolUse, and deps as Deps[T]": (
            "takes_ctx takes_context context pass_context"
        ),
        "the schema comes from the type hints; parameters={…} is a JSON Schema in their place": (
            "args_schema schema input_schema json_schema args_model strict strict_mode"
        ),
        "the docstring describes the parameters, below Args: or with :param": (
            "docstring_format require_parameter_descriptions parse_docstring"
        ),
        "the name is name=…": "name_override tool_name",
        "the description is description=…, by default the docstring": "description_override",
        "the answer of a run is its last text, or output_type=…; a hook that returns Stop(…) ends the run": (
            "return_direct"
        ),
        "an error is reported to the model by raise ToolError(…)": "failure_error_function handle_tool_error",
        "a hook in @before(ModelCall) changes the tools of a call: call.tools": "prepare is_enabled",
        "tools of one step run in parallel; a tool with alone=True runs by itself": "sequential parallel",
        "seconds are timeout=…": "timeout_seconds",
    }
)

ANSWER_OPTIONS = _spread_names(
    {
        "the reason of a denial is words=…": "reason message comment feedback text",
        'the choice is "allow", "deny", "allow_session" or "allow_always": answer(thread_id, question_id, "allow")': (
            "approve approved allow allowed decision answer"
        ),
        "the owner is owner=…, the same as user= of the run": "user",
        "changed arguments are args={…}": "override_args arguments edited_args",
    }
)

SESSIONS_OPTIONS = _spread_names(
    {
        "did you mean owner=, the same as user= of the run?": "user user_id name",
        "the thread's id is the first argument": "thread thread_id session_id conversation_id",
        "the message is the second argument": "text content input",
        "a page is limit=50, and the next one cursor=page.next": "page offset size",
        "threads with open questions are asking=True, with an open run running=True": "status state pending open",
        "it iterates over the threads of all owners; each has its head.owner": "owner",
    }
)

_QUESTIONS = "questions are `await sessions.questions(id)`, or sessions.iter_questions() for all owners"

SESSIONS_ATTRIBUTES = _spread_names(
    {
        "a thread is read with `await sessions.load(id)`": "get get_thread read get_session thread history messages",
        'a run creates its thread: agent.run(text, thread="…"); without it, await sessions.store.create(owner, id)': (
            "create create_thread create_session new start"
        ),
        "`await sessions.threads()` returns a page of threads": "list list_threads list_sessions all",
        "it is a method of the store: `await sessions.store.delete(owner, id)`": "delete remove delete_session",
        "it is a method of the store: `await sessions.store.search(owner, text)`": "search find",
        "a run without input resumes a thread: agent.run(thread=id)": "resume run continue_run",
        _QUESTIONS: "pending approvals list_questions open_questions all_questions interrupts interruptions",
        'an answer is `await sessions.answer(id, question["id"], "allow")`': "approve allow reject deny respond reply",
        "a message is sent with `await sessions.send(id, text)`": "add append add_message enqueue",
        "runs save their threads themselves": "save commit flush",
        "files and connections are closed by `await sessions.close()`": "aclose",
    }
)

SESSIONS_ARGUMENTS = {  # of methods that are called with a wrong number of arguments
    "questions": _QUESTIONS,
    "threads": "the owner is owner=…, the same as user= of the runs",
    "answer": 'an answer is `await sessions.answer(id, question["id"], "deny", words="…", owner=…)`',
}

CAPABILITY_OPTIONS = {
    "Sessions": _spread_names(
        {
            "an open question lapses after the seconds answer_within=…": (
                "timeout expires expiry ttl expires_in question_timeout"
            ),
            "a run waits for an answer for the seconds patience=…, then it pauses": "wait wait_seconds",
            "the owner is user= of the run, and owner= of the methods": "user user_id owner",
        }
    ),
    "Limits": _spread_names({"it is seconds=…": "timeout time timeout_seconds", "it is cost=…": "dollars usd price"}),
    "Budget": _spread_names(
        {
            "it is dollars=…": "usd cost price",
            'each user has a Budget of their own: agent.with_hooks(budgets[user]).run("…")': "per user scope key",
            "a budget that lasts is shared with counters of your own: budget.share(counters, key)": (
                "spent used period reset store path"
            ),
        }
    ),
}

AGENT_ATTRIBUTES = _spread_names(
    {
        'a run without input resumes a thread: agent.run(thread="…", user="…")': "resume continue_run",
        "questions are `await sessions.questions(id)`, of the Sessions in its hooks": "questions pending approvals",
        "a message is added to a run with run.send(text), and to a thread with thread.add(user(text))": (
            "add_message add_messages"
        ),
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
        _VALIDATOR: "output_validator result_validator",
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
        "write the fields that you need, such as result.text, result.outcome and result.usage.to_json()": (
            "model_dump model_dump_json to_json to_dict dict json"
        ),
        "tokens are in result.usage, the price in dollars is result.price": "metrics",
        "tokens are in result.usage": "token_usage",
        "the end of the run is result.outcome, and result.reason says why": "stop_reason finish_reason status",
        "a run that waits has result.outcome == 'interrupted'; Sessions lists its questions": (
            "interruptions interrupted questions is_interrupted"
        ),
        "the conversation is result.thread; a hook reads run.id": "run_id",
        "the id of the conversation is result.thread.id": "thread_id session_id",
    }
)

TOOL_RESULT_ATTRIBUTES = _spread_names(
    {
        "the text for the model is result.output, the error is result.error, the value is result.data": (
            "content value result return_value response message is_error status artifact"
        ),
        "the id of the call is result.tool_call_id": "call_id id",
    }
)

REQUEST_ATTRIBUTES = _spread_names(
    {
        "the text of the last message is request.text; all messages are request.messages": (
            "prompt user_prompt input message content last last_message last_content query"
        ),
        "the system prompt is request.system": "system_prompt instructions",
        "the tools are request.tools": "function_tools",
        "the settings are request.settings": "model_settings temperature max_tokens",
    }
)

STREAM_ATTRIBUTES = _spread_names(
    {
        (
            "read the events: `async for event in stream`; text is event.delta of events of the class ChatModelStream, "
            "from wick.events"
        ): ("stream_text"),
        "read the events: `async for event in stream`; then stream.result.output is the answer": (
            "stream_output partial"
        ),
        "read the events: `async for event in stream`": "stream_events",
        "`await stream.finish()` returns the result; its output is the answer": "get_output",
        "`await stream.finish()` returns the result": "get_final_message",
        "`await stream.finish()` returns the result; result.text is its text": "text",
        "`await stream.finish()` returns the result; result.output is the answer": "output final_output",
        "the messages are there at the end: stream.result.messages": "messages",
        "cancel the task that reads the stream; leaving its loop with break cancels the run, too": (
            "cancel close aclose stop"
        ),
    }
)

EVENT_ATTRIBUTES = _spread_names(
    {
        "text is the delta of a ChatModelStream: `if isinstance(event, ChatModelStream)`, from wick.events": (
            "delta text content token chunk answer"
        ),
        'the kind of an event is event.event, such as "on_chat_model_stream", or its class, from wick.events': (
            "type kind event_kind event_type"
        ),
        "the result of a run is stream.result, after the last event": "result output final_output",
        "JSON data is event.to_json()": "model_dump model_dump_json to_dict dict json",
    }
)

MESSAGE_ATTRIBUTES = _spread_names(
    {
        "message.content is a text, or a tuple of parts; message.text is the text": "parts output",
        "the role is message.role": "type kind",
        "the calls of a reply are message.tool_calls": "tool_call function_call",
        "reasoning is message.reasoning": "thinking reasoning_content",
        "the tokens of a run are result.usage": "usage usage_metadata",
    }
)

USAGE_ATTRIBUTES = _spread_names(
    {
        "it is usage.input_tokens": "prompt_tokens request_tokens prompt_token_count",
        "it is usage.output_tokens": "completion_tokens response_tokens candidates_token_count",
        "it is usage.total_tokens": "total tokens total_token_count",
        "the model calls of a run are result.charges": "requests",
        "the price is result.price": "cost price",
        "it is usage.to_json()": "model_dump dict",
    }
)

OPERATION_ATTRIBUTES = {
    "tool_use": _spread_names(
        {
            "the name of the tool is use.name": "tool_name function function_name",
            "the arguments are use.args": "arguments tool_input tool_args input params parameters kwargs",
            "the result is use.result; its text is use.result.output": "output response",
            "the deps are use.run.deps": "deps context ctx",
            "the messages are use.run.thread.messages": "messages",
            "the user is use.run.user": "user user_id",
        }
    ),
    "model_call": _spread_names(
        {
            "the request is call.messages, call.system, call.tools and call.settings": "prompt",
            "the reply is call.result, a Message": "response reply output text",
            "the name of the model is call.model.name": "name model_name",
            "the deps are call.run.deps": "deps context ctx",
        }
    ),
    "run": _spread_names(
        {
            "the system prompt is run.system": "instructions system_prompt prompt",
            "the messages are run.thread.messages; those of this run are run.output": "messages history",
            "the deps are run.deps": "context ctx dependencies",
            "the id of the conversation is run.thread.id": "thread_id session_id session conversation_id",
            "the user is run.user": "user_id",
            "data of a run is in run.scratch, that of a conversation in run.thread.values": "values metadata memory",
        }
    ),
    "step": _spread_names({"the messages are step.run.thread.messages": "messages"}),
}

DECISION_OPTIONS = _spread_names(
    {
        "the text is the first argument": "message msg text reason question prompt error content feedback",
        "a question lapses after the seconds answer_within=… of Sessions": "timeout expires expires_in ttl seconds",
    }
)

HOOK_OPTIONS = _spread_names(
    {
        'tools are matched with match=…, by name or pattern: match="delete_*"': "tool tool_name matcher pattern only",
        "tools are matched with match=[…]": "tools tool_names",
        "the order is priority=…; a higher one is further out": "order",
    }
)

TOOL_CALL_OPTIONS = _spread_names(
    {
        'a call is ToolCall(id, name, args), as in ToolCall("1", "add", {"a": 2})': (
            "name arguments input tool tool_name tool_call_id call_id parameters params function"
        ),
    }
)

SUBAGENT_OPTIONS = _spread_names(
    {
        "the system prompt is prompt=…": "instructions system system_prompt",
        "the type of its answer is output_type=…": "response_format output_schema result_type",
    }
)

PACKAGE_NAMES = _spread_names(
    {
        "an agent runs itself: agent.run_sync(…), or `await agent.run(…)`; `wick run` is the command": "run run_sync",
        "the command is `wick serve`; in Python, Server is in wick.server": "serve",
        "write `from wick.server import Server`": "Server",
        "it is a pytest fixture: `def test_it(cassette: NewCassette)`, with `from wick.testing import NewCassette`": (
            "cassette"
        ),
        "an agent runs itself: agent.run_sync(…), or `await agent.run(…)`": "Runner InMemoryRunner AgentExecutor",
        _AGENT: "create_agent create_react_agent create_deep_agent LlmAgent LLMAgent ToolCallingAgent CodeAgent",
        f"there is no graph; {_AGENT}, and hooks act at its steps": "StateGraph",
        _SUBAGENTS: "Team Crew Swarm handoff",
        "decorate a function with @tool, from wick": "function_tool FunctionTool tool_plain BaseTool StructuredTool",
        "tools that belong together are the methods of a Capability that are decorated with @tool": (
            "Toolkit FunctionToolset AbstractToolset"
        ),
        "tool.renamed(…) returns a tool with another name, under the same guards": "PrefixedToolset RenamedToolset",
        "a tool or hook gets the run as a parameter run: Run, and deps as one of type Deps[T]": (
            "RunContext RunContextWrapper"
        ),
        "a tool gets its call as a parameter use: ToolUse, the run as run: Run, and deps as Deps[T]": (
            "ToolContext ToolRuntime"
        ),
        "a tool reports an error to the model with raise ToolError(…), from wick": "ModelRetry",
        _LIMITS: "UsageLimits",
        "write a Capability with methods decorated with @before, @wrap, @after or @guard": (
            "AgentMiddleware AbstractCapability AgentHooks RunHooks HookProvider BasePlugin Plugin"
        ),
        _HOOKS: "Hooks",
        "decorate a hook with @before(Run), from wick": (
            "before_agent before_run before_agent_callback on_agent_start BeforeInvocationEvent UserPromptSubmit"
        ),
        "decorate a hook with @after(Run), from wick": (
            "after_agent after_run after_agent_callback on_agent_end AfterInvocationEvent"
        ),
        "decorate a hook with @wrap(Run), from wick": "wrap_run",
        "decorate a hook with @before(ModelCall), from wick": (
            "before_model before_model_request before_model_callback on_llm_start BeforeModelCallEvent "
            "call_model_input_filter"
        ),
        "decorate a hook with @after(ModelCall), from wick": (
            "after_model after_model_request after_model_callback on_llm_end AfterModelCallEvent"
        ),
        "decorate a hook with @wrap(ModelCall), from wick": "wrap_model_call wrap_model_request",
        "decorate a hook with @before(ToolUse), from wick; one that refuses a call is a @guard(ToolUse)": (
            "before_tool_execute before_tool_callback on_tool_start BeforeToolCallEvent PreToolUse"
        ),
        "decorate a hook with @after(ToolUse), from wick": (
            "after_tool_execute after_tool_callback on_tool_end AfterToolCallEvent PostToolUse tool_output_guardrail"
        ),
        "decorate a hook with @wrap(ToolUse), from wick": "wrap_tool_call wrap_tool_execute",
        "decorate a check of all pending calls with @guard(Step), from wick": "BeforeToolsEvent",
        "decorate a hook with @after(Step), from wick": "AfterToolsEvent",
        "a hook in @before(ModelCall) changes the prompt of a call: call.system": "dynamic_prompt",
        "a hook in @wrap returns a result and does not call next; a guard refuses a call with Block(…), from wick": (
            "SkipToolExecution SkipModelRequest"
        ),
        "decorate a check with @guard(Run), from wick": "input_guardrail",
        "decorate a check with @guard(ToolUse), from wick": "tool_input_guardrail InterventionHandler",
        "decorate a check with @after(Run), from wick": "output_guardrail",
        "a guard returns Block(…), Ask(…), Stop(…) or None": "GuardrailFunctionOutput ToolGuardrailFunctionOutput",
        "a guard refuses a call with Block(…), from wick": "Deny",
        "a hook in @before(ToolUse) changes the arguments of a call: use.args": "Transform",
        "a guard that returns Ask(…) asks the user": (
            "interrupt ApprovalRequired CallDeferred DeferredToolRequests DeferredToolResults Confirm"
        ),
        "a hook returns Block(…), Ask(…), Stop(…), Continue(…) or None": "Command",
        'conversations are stored by Sessions("./sessions"), from wick.capabilities': (
            "SQLiteSession Session SessionService FileSessionManager S3SessionManager"
        ),
        "the state of a conversation is its thread: result.thread, stored by Sessions(…), from wick.capabilities": (
            "RunState"
        ),
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
        "the type of the answer is Agent(model, output_type=…)": (
            "NativeOutput ToolOutput PromptedOutput ToolStrategy ProviderStrategy"
        ),
        "a run returns a Result, from wick": "AgentRunResult RunResult StreamedRunResult",
        _SETTING: "ModelSettings",
        'a model with a server of its own is Agent({"provider": "openai", "model": "…", "base_url": "…"})': (
            "set_default_openai_client"
        ),
        "files and commands are hooks=[Filesystem(…)], in a backend of wick.backends": (
            "Sandbox Read Write Edit Glob Grep"
        ),
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
        "write Limits(steps=…, tool_calls=…), from wick.capabilities": (
            "ModelCallLimitMiddleware ToolCallLimitMiddleware"
        ),
        "a hook in @after(ModelCall, hold=True) changes a reply before anything of it is shown": "PIIMiddleware",
        "write `from wick.capabilities import ToolSearch`": "LLMToolSelectorMiddleware",
        'write Permissions(deny=["Write", …]), from wick.capabilities': "FilesystemPermission",
        "write a guard that returns Ask(…), or use Permissions, from wick.capabilities": (
            "HumanInTheLoop HumanInTheLoopMiddleware Approvals Guardrails"
        ),
        "write `from wick.capabilities import Summarization`": (
            "Compaction ContextEditing SummarizationMiddleware SummarizingConversationManager"
        ),
        "write `from wick.capabilities import Fallback`": "ModelFallback FallbackModel ModelFallbackMiddleware",
        "write `from wick.capabilities import Retry`; every agent has it": "ModelRetryMiddleware ModelRetryStrategy",
        "write `from wick.capabilities import Todos`": "TodoList TodoListMiddleware Planning",
        "write `from wick.capabilities import Critique`": "Reflection Judge",
        "write `from wick.capabilities import Filesystem`": "Shell Bash Files FileSystem ShellToolMiddleware",
    }
)

TESTING_NAMES = {"cassette": PACKAGE_NAMES["cassette"]}

SUBPACKAGE_NAMES = (CAPABILITY_NAMES, MODEL_NAMES, STORE_NAMES, BACKEND_NAMES)  # in the order of a search

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
    all_options = f"the options are {', '.join(options)}" if options else "it has none"
    hint = f"did you mean {close[0]}=?" if close else all_options
    return f"{owner} has no option {name}=; {hint}"


def explain_options(owner: str, words: Mapping[str, str]) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Return a decorator: a keyword that the function does not have raises a TypeError with a sentence."""

    def decorate(fn: Callable[P, R]) -> Callable[P, R]:
        parameters = inspect.signature(fn).parameters
        if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
            return fn
        known = [name for name in parameters if name != "self"]

        @wraps(fn)
        def call(*args: P.args, **options: P.kwargs) -> R:
            for name in options:
                if name not in known:
                    raise TypeError(explain_option(owner, name, known, words))
            return fn(*args, **options)

        return call

    return decorate


def explain_arguments(owner: str, hint: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Return a decorator: a missing or surplus positional argument of a method raises a TypeError with `hint`."""

    def decorate(fn: Callable[P, R]) -> Callable[P, R]:
        parameters = [one for one in inspect.signature(fn).parameters.values() if one.kind is one.POSITIONAL_OR_KEYWORD]
        required = [one.name for one in parameters if one.default is one.empty]

        @wraps(fn)
        def call(*args: P.args, **options: P.kwargs) -> R:
            if missing := [name for name in required[len(args) :] if name not in options]:
                raise TypeError(f"{owner} needs {' and '.join(missing)}; {hint}")
            if len(args) > len(parameters):
                arguments = "argument" if len(parameters) == 2 else "arguments"  # beside self
                problem = f"takes {len(parameters) - 1} positional {arguments}, not {len(args) - 1}"
                raise TypeError(f"{owner} {problem}; {hint}")
            return fn(*args, **options)

        return call

    return decorate


class FamiliarAttribute:
    """An attribute that objects of other libraries have. Reading it raises an AttributeError with a sentence."""

    __slots__ = ("hint", "name")

    def __init__(self, name: str, hint: str) -> None:
        self.name, self.hint = name, hint

    def __get__(self, owner: object, kind: type) -> NoReturn:
        problem = f"{kind.__name__!r} object has no attribute {self.name!r}; {self.hint}"
        raise AttributeError(problem, name=self.name, obj=owner)


def explain_attributes(words: Mapping[str, str]) -> Callable[[Kind], Kind]:
    """Let a class answer familiar attributes that it does not have.

    A `__getattr__` would make each access to any attribute of the class slower.
    """

    def decorate(kind: Kind) -> Kind:
        for name, hint in words.items():
            if not hasattr(kind, name):
                setattr(kind, name, FamiliarAttribute(name, hint))
        return kind

    return decorate


def refuse_item(hint: str) -> Callable[[object, object], NoReturn]:
    """Return the `__getitem__` of a class that is not a dict: it raises a TypeError with a sentence."""

    def refuse_key(owner: object, key: object) -> NoReturn:
        raise TypeError(f"a {type(owner).__name__} is not a dict: write {hint}, not [{key!r}]")

    return refuse_key


def refuse_changes(hint: str) -> Callable[[object, str, object], NoReturn]:
    """Return the `__setattr__` of an immutable class: it raises a FrozenInstanceError with a sentence."""

    def refuse_change(owner: object, name: str, value: object) -> NoReturn:
        raise FrozenInstanceError(f"cannot set {name}: a {type(owner).__name__} is immutable; {hint}")

    return refuse_change

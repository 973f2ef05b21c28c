"""Every cap in one place."""

# hooks and the loop
GUARD_SECONDS = 30.0  # a guard that has not answered by then has not agreed
MAX_STEPS = 25
MAX_CONTINUES = 8  # hooks may send a finished run back this often in a row
CANCEL_GRACE_SECONDS = 1.0  # what is cancelled and does not end by then is abandoned

# tools
TOOL_OUTPUT_CHARS = 1_000_000  # unless the tool says `max_output`
CUT_HEAD_CHARS = CUT_TAIL_CHARS = 2_000  # what is kept of an output that was cut
CALLBACK_SECONDS = 60.0
CALLBACK_BYTES = 1_000_000  # the largest answer an HTTP tool may give
ARGS_BYTES = 4_000_000  # the largest arguments of one call
JSON_DEPTH = 100

# models
REPLY_CHARS = 8_000_000  # text, reasoning and arguments of one reply
REPLY_CALLS = 128
SSE_LINE_BYTES = 16_000_000  # the longest line of a stream
ERROR_BODY_BYTES = 64_000  # how much of a refusal is read
CONNECT_SECONDS = 10.0
FIRST_BYTE_SECONDS = 120.0  # until a reply begins
CHUNK_SECONDS = 60.0  # between two pieces of it
REPLY_SECONDS = 900.0  # until it ends
LAST_BYTE_SECONDS = 1.0  # for the end of an answer that has been read, so that its connection can be used again
OLLAMA_SECONDS = 0.3  # for an Ollama to say that it is there

# tokens are estimated as characters / 4; a picture or a file counts as this many
CHARS_PER_TOKEN = 4
MEDIA_TOKENS = 1_000

# traces
PREVIEW_CHARS = 500

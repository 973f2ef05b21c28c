"""The terminal: input, output, prompts, and following a run."""

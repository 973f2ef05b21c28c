"""Agents that an agent starts: their definitions, and their runs; for subagents and recipes."""

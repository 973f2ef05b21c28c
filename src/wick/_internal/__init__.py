"""Helpers without concepts of wick: frozen JSON, tasks, worker threads, bounded YAML, guarded HTTP, tool schemas."""

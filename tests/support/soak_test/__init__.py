"""A soak: many people talk to one server for a long time, while something breaks every other second."""

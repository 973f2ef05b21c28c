"""Permission rules: the rules, their specifiers, and two independent parsers of shell commands."""

"""One module for each command; the root command loads it when it is named."""

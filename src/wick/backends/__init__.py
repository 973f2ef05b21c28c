"""Where files are and commands run: on this machine, in a container, or in the thread itself."""

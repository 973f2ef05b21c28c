"""The commands, one module each; the root command imports a module on use."""

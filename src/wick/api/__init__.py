"""The vocabulary of the HTTP API, shared by the server, the client and the command line."""

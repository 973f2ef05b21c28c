"""wickd: runs commands and file operations for wick, on the host and inside containers.

A small single-threaded process that serves concurrent requests and replies as lines of JSON.
`python3 wickd.pyz` serves its standard input and output; `--tcp` and `--unix` listen for clients with the token.

These modules run inside containers too, apart from `zipapp`: the standard library only, Python 3.8.
"""

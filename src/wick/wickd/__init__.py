"""wickd: runs commands and file operations for wick, on the host and inside containers.

A small single-threaded process that reads requests as lines of JSON and answers in lines of JSON, many at a time.
`python3 wickd.pyz` serves its standard input and output; `--tcp` and `--unix` listen, for those who have the token.

These modules run inside containers too, apart from `zipapp`: the standard library only, Python 3.8.
"""

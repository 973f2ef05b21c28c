"""Connections to MCP servers: programs that this one starts, and services behind HTTP.

servers = read_servers({"files": {"command": "mcp-files", "args": ["."]}})
links = Links()
link = await links.to(servers[0])            connected, whoever asked first
tools = await link.tools()
answer = await link.ask(lambda client: client.call_tool("search", {"query": "moon"}))
await links.close()
"""

"""A client by the official library: makes the calls of a plan, and prints what it was answered."""

import asyncio
import json
import sys

from mcp import Client, StdioServerParameters


async def main(plan):
    command, *args = plan["gateway"]
    gateway = StdioServerParameters(command=command, args=args, env=plan["env"])
    async with Client(gateway, mode=plan["mode"]) as client:
        tools = await client.list_tools()
        answers = []
        for call in plan["calls"]:
            answer = await client.call_tool(call["tool"], call["arguments"])
            answers.append(answer.model_dump(mode="json", by_alias=True, exclude_none=True))
        print(json.dumps({"tools": [tool.name for tool in tools.tools], "answers": answers}))


asyncio.run(main(json.loads(sys.argv[1])))

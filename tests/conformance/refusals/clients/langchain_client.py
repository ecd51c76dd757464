"""langchain-mcp-adapters, its tools run by LangGraph's ``ToolNode`` as an agent's would be."""

from contextlib import asynccontextmanager

from langchain_core.messages import AIMessage
from langchain_mcp_adapters.client import MultiServerMCPClient
from langchain_mcp_adapters.tools import load_mcp_tools
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from steps import serve


@asynccontextmanager
async def client(transport, where):
    """Yield how a tool is called."""
    if transport == "stdio":
        server = {"transport": "stdio", "command": where[0], "args": where[1:]}
    else:
        server = {"transport": "sse" if transport == "sse" else "streamable_http", "url": where}
    async with MultiServerMCPClient({"matrix": server}).session("matrix") as session:
        graph = StateGraph(MessagesState)
        graph.add_node("tools", ToolNode(await load_mcp_tools(session)))
        graph.add_edge(START, "tools")
        graph.add_edge("tools", END)
        agent = graph.compile()

        async def call(tool, arguments):
            asked = {"name": tool, "args": arguments, "id": "call_1", "type": "tool_call"}
            state = await agent.ainvoke({"messages": [AIMessage("", tool_calls=[asked])]})
            content = state["messages"][-1].content
            if isinstance(content, str):
                return content
            return "\n".join(str(item.get("text", item)) for item in content)

        yield call


serve(client)

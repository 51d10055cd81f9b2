"""langgraph with langchain-openai: a graph of one node that calls the model, and threads of a checkpointer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from itertools import count
from typing import Any

from clients.base import MODEL, Client, Pairs
from langchain_core.messages import AIMessage, HumanMessage
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph


class LangGraph(Client):
    """Fork by a new thread that begins with the history."""

    # Each turn writes the whole conversation into a checkpoint, about a megabyte a branch.
    most_branches = 300

    async def open(self, base_url: str, capacity: int) -> None:
        """Compile graphs that call the model, with and without memory, and one that says what it is told."""
        model = ChatOpenAI(model=MODEL, base_url=base_url, api_key="x")
        self._said = ""

        async def call(state: MessagesState) -> dict[str, Any]:
            return {"messages": [await model.ainvoke(state["messages"])]}

        async def say(state: MessagesState) -> dict[str, Any]:
            return {"messages": [AIMessage(self._said)]}

        self._plain = _compiled(call)
        self._threads = _compiled(call, InMemorySaver())
        self._offline = _compiled(say, InMemorySaver())
        self._ids = count()

    async def run(self, prompt: str) -> str:
        """Invoke the graph without memory."""
        state = await self._plain.ainvoke({"messages": [HumanMessage(prompt)]})
        return str(state["messages"][-1].content)

    async def stream(self, prompt: str) -> list[str]:
        """Stream the model's messages out of the graph."""
        parts = self._plain.astream({"messages": [HumanMessage(prompt)]}, stream_mode="messages")
        return [message.content async for message, _ in parts if message.content]

    def history(self, pairs: Pairs) -> list[Any]:
        """Make messages."""
        return [message for said, answered in pairs for message in (HumanMessage(said), AIMessage(answered))]

    async def turns(self, history: list[Any], prompts: Sequence[str]) -> str:
        """Begin a thread with the history, and add to it."""
        thread, state = self._thread(), {}
        new = history
        for prompt in prompts:
            state = await self._threads.ainvoke({"messages": [*new, HumanMessage(prompt)]}, thread)
            new = []
        return str(state["messages"][-1].content)

    async def hold(self, history: list[Any], pairs: Pairs) -> Any:
        """Do the same where nobody is called; the checkpointer keeps it."""
        thread, new = self._thread(), history
        for said, self._said in pairs:
            await self._offline.ainvoke({"messages": [*new, HumanMessage(said)]}, thread)
            new = []
        return thread

    def _thread(self) -> Any:
        return {"configurable": {"thread_id": str(next(self._ids))}}


def _compiled(node: Callable[[MessagesState], Awaitable[dict[str, Any]]], saver: Any = None) -> Any:
    graph = StateGraph(MessagesState)
    graph.add_node("model", node)
    graph.add_edge(START, "model")
    graph.add_edge("model", END)
    return graph.compile(checkpointer=saver)


CLIENT = LangGraph

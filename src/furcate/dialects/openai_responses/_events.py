"""Events of ``openai-responses`` that need no handling, and what tells the others apart."""

from __future__ import annotations

# Members that carry something a user may want to see; an event without one says only how things go on.
CONTENT = frozenset(
    {
        "annotation",
        "arguments",
        "audio",
        "code",
        "command",
        "content",
        "data",
        "delta",
        "image",
        "input",
        "item",
        "output",
        "part",
        "partial_image_b64",
        "refusal",
        "result",
        "summary",
        "text",
        "transcript",
    }
)

# How provider-run work goes on, and announcements of parts; what they bring stands in the item at its end.
PROGRESS = frozenset(
    {
        "response.apply_patch_call_operation_diff.delta",
        "response.apply_patch_call_operation_diff.done",
        "response.code_interpreter_call.completed",
        "response.code_interpreter_call.in_progress",
        "response.code_interpreter_call.interpreting",
        "response.code_interpreter_call_code.delta",
        "response.code_interpreter_call_code.done",
        "response.compaction.compacting",
        "response.content_part.added",
        "response.file_search_call.completed",
        "response.file_search_call.in_progress",
        "response.file_search_call.searching",
        "response.image_generation_call.completed",
        "response.image_generation_call.generating",
        "response.image_generation_call.in_progress",
        "response.image_generation_call.partial_image",
        "response.mcp_call.completed",
        "response.mcp_call.failed",
        "response.mcp_call.in_progress",
        "response.mcp_call_arguments.delta",
        "response.mcp_call_arguments.done",
        "response.mcp_list_tools.completed",
        "response.mcp_list_tools.failed",
        "response.mcp_list_tools.in_progress",
        "response.reasoning_summary_part.added",
        "response.reasoning_summary_part.done",
        "response.shell_call_command.added",
        "response.shell_call_command.delta",
        "response.shell_call_command.done",
        "response.shell_call_output_content.delta",
        "response.shell_call_output_content.done",
        "response.web_search_call.completed",
        "response.web_search_call.in_progress",
        "response.web_search_call.searching",
    }
)

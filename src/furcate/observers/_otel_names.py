"""What spans, attributes, events and metrics are called: one table, and nothing else of furcate writes such a name.

Names that begin with ``gen_ai`` are those of the OpenTelemetry conventions for generative AI in their own repository,
open-telemetry/semantic-conventions-genai, version 0.1.0 (docs/gen-ai/client-inference.md, gen-ai-token-metrics.md and
the part on agents and workflows). ``error.type``, ``server.address`` and ``server.port`` are stable names of
semantic-conventions 1.45.0, on which that version stands. Names that begin with ``furcate`` are ours. Two names serve
backends: ``cache_creation`` is what the conventions called a cache write until 1.41, and ``openinference.span.kind``
tells those that show kinds of spans what a span without a model call is.
"""

from __future__ import annotations

from typing import Final

CONVENTIONS: Final = "semantic-conventions-genai 0.1.0"
SCOPE: Final = "furcate"

# What an operation is.
OPERATION: Final = "gen_ai.operation.name"
CHAT: Final = "chat"
WORKFLOW: Final = "invoke_workflow"

# Who is asked.
PROVIDER: Final = "gen_ai.provider.name"
SERVER_ADDRESS: Final = "server.address"
SERVER_PORT: Final = "server.port"
CONVERSATION: Final = "gen_ai.conversation.id"
PROMPT: Final = "gen_ai.prompt.name"
AGENT_NAME: Final = "gen_ai.agent.name"

# What is asked for.
REQUEST_MODEL: Final = "gen_ai.request.model"
REQUEST_STREAM: Final = "gen_ai.request.stream"
MAX_TOKENS: Final = "gen_ai.request.max_tokens"
TEMPERATURE: Final = "gen_ai.request.temperature"
TOP_P: Final = "gen_ai.request.top_p"
SEED: Final = "gen_ai.request.seed"
STOP_SEQUENCES: Final = "gen_ai.request.stop_sequences"
REASONING_LEVEL: Final = "gen_ai.request.reasoning.level"

# What came.
RESPONSE_ID: Final = "gen_ai.response.id"
RESPONSE_MODEL: Final = "gen_ai.response.model"
FINISH_REASONS: Final = "gen_ai.response.finish_reasons"
TIME_TO_FIRST_CHUNK: Final = "gen_ai.response.time_to_first_chunk"
INPUT_TOKENS: Final = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS: Final = "gen_ai.usage.output_tokens"
CACHE_READ_TOKENS: Final = "gen_ai.usage.cache_read.input_tokens"
CACHE_WRITE_TOKENS: Final = "gen_ai.usage.cache_write.input_tokens"
CACHE_CREATION_TOKENS: Final = "gen_ai.usage.cache_creation.input_tokens"
REASONING_TOKENS: Final = "gen_ai.usage.reasoning.output_tokens"
ERROR_TYPE: Final = "error.type"
OTHER_ERROR: Final = "_OTHER"

# What was said, where that is asked for.
SYSTEM_INSTRUCTIONS: Final = "gen_ai.system_instructions"
INPUT_MESSAGES: Final = "gen_ai.input.messages"
OUTPUT_MESSAGES: Final = "gen_ai.output.messages"
CAPTURE_VARIABLE: Final = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"

# For backends that know kinds of spans.
SPAN_KIND: Final = "openinference.span.kind"
CHAIN: Final = "CHAIN"

# Ours, on runs.
RUN_ID: Final = "furcate.run.id"
SCOPE_ID: Final = "furcate.scope.id"
PROFILE: Final = "furcate.profile"
BACKEND: Final = "furcate.backend"
DIALECT: Final = "furcate.dialect"
PARENT_RUN_ID: Final = "furcate.parent.run.id"
PARENT_TRACE_ID: Final = "furcate.parent.trace_id"
PARENT_SPAN_ID: Final = "furcate.parent.span_id"
STATUS: Final = "furcate.status"
ATTEMPTS: Final = "furcate.attempts"
REPAIRS: Final = "furcate.repairs"
WAITED: Final = "furcate.waited_s"
REPLAYED: Final = "furcate.replayed_attempts"
VALIDATION: Final = "furcate.validation"
STOP_REASON: Final = "furcate.stop_reason"
FAILURE_KIND: Final = "furcate.failure.kind"
FAILURE_REASON: Final = "furcate.failure.reason"
LOWER_BOUNDS: Final = "furcate.usage.lower_bounds"
CONTENT_CUT: Final = "furcate.content.cut"
CONTENT_INHERITED: Final = "furcate.content.inherited_messages"

# Ours, on attempts.
ATTEMPT_NUMBER: Final = "furcate.attempt.number"
ATTEMPT_PURPOSE: Final = "furcate.attempt.purpose"
ATTEMPT_REQUEST_ID: Final = "furcate.attempt.request_id"
ATTEMPT_WAITED: Final = "furcate.attempt.waited_s"
ATTEMPT_FIRST_EVENT: Final = "furcate.attempt.first_event_s"
ATTEMPT_BODY_SHA256: Final = "furcate.attempt.body_sha256"
ATTEMPT_RESPONSE_ID: Final = "furcate.attempt.response_id"
ATTEMPT_FOREIGN_DROPPED: Final = "furcate.attempt.foreign_reasoning_dropped"

# Ours, on coordinators and nurseries.
SCOPE_KIND: Final = "furcate.scope.kind"
COORDINATOR: Final = "coordinator"
NURSERY: Final = "nursery"
TURNS_ALLOWED: Final = "furcate.coordinator.additional_turns"
TURNS_TAKEN: Final = "furcate.coordinator.turns"
OUTCOME: Final = "furcate.coordinator.outcome"
BRANCHES: Final = "furcate.nursery.branches"

# Ours, on a link: what it says of the span at its other end.
LINK_KIND: Final = "furcate.link"
CONTINUES: Final = "continues"
PART_OF: Final = "part_of"
ITEM_SPAN: Final = "furcate.item"
ITEM_ID: Final = "furcate.item.id"
JOB_SPAN: Final = "furcate.batch"
JOB_TARGET: Final = "furcate.batch.target"

# Events on a run's span, and on an attempt's.
RETRY_EVENT: Final = "furcate.retry"
REPAIR_EVENT: Final = "furcate.repair"
RESUME_EVENT: Final = "furcate.resume"
PAUSE_EVENT: Final = "furcate.pause"
ACTIVITY_EVENT: Final = "furcate.activity"
ACTIVITY_NAME: Final = "furcate.activity.name"
ACTIVITY_STATE: Final = "furcate.activity.state"
PAUSE_WAIT: Final = "furcate.pause.wait_s"

# Metrics.
DURATION: Final = "gen_ai.client.inference.duration"
FIRST_CHUNK: Final = "gen_ai.client.inference.time_to_first_chunk"
USED_INPUT: Final = "gen_ai.client.inference.usage.input_tokens"
USED_OUTPUT: Final = "gen_ai.client.inference.usage.output_tokens"
USED_CACHE_READ: Final = "gen_ai.client.inference.usage.cache_read.input_tokens"
USED_CACHE_WRITE: Final = "gen_ai.client.inference.usage.cache_write.input_tokens"
USED_REASONING: Final = "gen_ai.client.inference.usage.reasoning.output_tokens"
INPUT_PER_RUN: Final = "gen_ai.client.inference.operation.input_tokens"
OUTPUT_PER_RUN: Final = "gen_ai.client.inference.operation.output_tokens"
QUEUE_WAIT: Final = "furcate.client.queue.wait"
LEASES: Final = "furcate.client.leases.in_use"
MODALITY: Final = "gen_ai.token.modality"
UNKNOWN_MODALITY: Final = "unknown"

SECONDS_BOUNDARIES: Final = (
    0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92,
)  # fmt: skip
TOKEN_BOUNDARIES: Final = (
    1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864,
)  # fmt: skip
WAIT_BOUNDARIES: Final = (0.001, 0.01, 0.1, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92, 163.84, 327.68)

# The words of the conventions for why an answer ended; ours, which are finer, stand beside them.
FINISHED: Final = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_call",
    "max_output_tokens": "length",
    "context_window": "length",
    "refusal": "content_filter",
}
FINISHED_BADLY: Final = "error"

# Which well-known provider's form of telemetry a dialect's answers have, and which providers are known by their host.
PROVIDERS: Final = {
    "openai-responses": "openai",
    "openai-chat": "openai",
    "anthropic-messages": "anthropic",
    "google-generatecontent": "gcp.gen_ai",
}
EMBEDDED_PROVIDER: Final = "furcate.local"
PROVIDER_HOSTS: Final = (
    (".generativelanguage.googleapis.com", "gcp.gemini"),
    ("aiplatform.googleapis.com", "gcp.vertex_ai"),
    (".openai.azure.com", "azure.ai.openai"),
    (".deepseek.com", "deepseek"),
    (".groq.com", "groq"),
    (".mistral.ai", "mistral_ai"),
    (".moonshot.ai", "moonshot_ai"),
    (".perplexity.ai", "perplexity"),
    (".x.ai", "x_ai"),
)

"""Refusals as upstreams send them: the shapes that the classifier is asked about, at least one for each of its rows."""

from __future__ import annotations

from typing import NamedTuple


class Refusal(NamedTuple):
    """One answer, and the cause that it stands for."""

    name: str
    status: int
    """0: it came inside a 200 answer."""
    body: bytes
    cause: str


def openai(message: str, code: str = "null", kind: str = "invalid_request_error") -> bytes:
    """OpenAI's shape; `code` is JSON."""
    return f'{{"error":{{"message":"{message}","type":"{kind}","param":null,"code":{code}}}}}'.encode()


def new_api(message: str, code: str) -> bytes:
    """one-api's and new-api's shape."""
    return openai(f"{message} (request id: 20261130120000)", f'"{code}"', "new_api_error")


CLOUDFLARE = b"<!DOCTYPE html><html><head><title>taotoken.net | %b</title></head><body>Ray ID: 8f</body></html>"

REFUSALS = (
    # the prompt does not fit
    Refusal(
        "openai overflow",
        400,
        openai("This model's maximum context length is 128000 tokens.", '"context_length_exceeded"'),
        "context_overflow",
    ),
    Refusal(
        "vllm overflow",
        400,
        openai(
            "This model's maximum context length is 2048 tokens. However, you requested 3000 output tokens and your "
            "prompt contains at least 10 input tokens.",
            "400",
            "BadRequestError",
        ),
        "context_overflow",
    ),
    Refusal(
        "older vllm overflow",
        400,
        b'{"object":"error","message":"This model\'s maximum context length is 8 tokens.","type":"BadRequestError",'
        b'"param":null,"code":400}',
        "context_overflow",
    ),
    Refusal(
        "anthropic overflow",
        400,
        openai("prompt is too long: 210000 tokens > 200000 maximum"),
        "context_overflow",
    ),
    Refusal(
        "groq overflow", 400, openai("Please reduce the length of the messages or completion."), "context_overflow"
    ),
    Refusal(
        "moonshot overflow",
        400,
        openai("Invalid request: Your request exceeded model token limit: 262144"),
        "context_overflow",
    ),
    Refusal(
        "llama.cpp overflow",
        400,
        openai("the request exceeds the available context size", "400", "exceed_context_size_error"),
        "context_overflow",
    ),
    Refusal(
        "sglang overflow",
        400,
        b'{"object":"error","type":"BadRequestError","code":400,'
        b'"message":"The input (9000 tokens) is longer than the model\'s context length (8192 tokens)."}',
        "context_overflow",
    ),
    Refusal("an overflow behind a proxy", 500, openai("upstream: context window exceeded"), "context_overflow"),
    # the content
    Refusal("openai content", 400, openai("The response was filtered", '"content_filter"'), "content_blocked"),
    Refusal("azure content", 400, openai("... triggering Azure's content management policy."), "content_blocked"),
    Refusal("openai image", 400, openai("rejected", '"content_policy_violation"'), "content_blocked"),
    Refusal(
        "new-api words", 400, new_api("user sensitive words detected", "sensitive_words_detected"), "content_blocked"
    ),
    # money
    Refusal(
        "openai quota",
        429,
        openai(
            "You exceeded your current quota, please check your plan.", '"insufficient_quota"', "insufficient_quota"
        ),
        "quota",
    ),
    Refusal("quota by type only", 429, openai("no", "null", "insufficient_quota"), "quota"),
    Refusal("one-api quota", 403, new_api("用户额度不足", "insufficient_user_quota"), "quota"),
    Refusal("one-api token quota", 403, new_api("pre-consume failed", "pre_consume_token_quota_failed"), "quota"),
    Refusal("words of a balance", 403, openai("Insufficient balance"), "quota"),
    Refusal("chinese words of a balance", 400, '{"error":{"message":"账户余额不足，请充值"}}'.encode(), "quota"),
    Refusal("deepseek 402", 402, openai("Insufficient Balance", '"invalid_request_error"'), "quota"),
    Refusal("openrouter 402", 402, openai("Add more credits", "402"), "quota"),
    Refusal("402 without a body", 402, b"", "quota"),
    Refusal("openrouter 402 in a 200", 0, openai("Requires more credits", "402"), "quota"),
    # the model's id
    Refusal("openai model", 404, openai("The model `x` does not exist", '"model_not_found"'), "unknown_model"),
    Refusal("openai model, 400", 400, openai("The model does not exist"), "unknown_model"),
    Refusal("vllm model", 404, openai("The model `x` does not exist.", "404", "NotFoundError"), "unknown_model"),
    Refusal("openrouter model", 400, openai("x/y is not a valid model ID", "400"), "unknown_model"),
    Refusal("new-api model", 503, new_api("No available channel for model x", "model_not_found"), "unknown_model"),
    Refusal("a wrong base url", 404, openai("Invalid URL (POST /v1/v1/chat/completions)"), "unknown_model"),
    Refusal("a wrong path at FastAPI", 404, b'{"detail":"Not Found"}', "unknown_model"),
    Refusal("a wrong method at FastAPI", 405, b'{"detail":"Method Not Allowed"}', "unknown_model"),
    Refusal("404 with a page", 404, CLOUDFLARE % b"404", "unknown_model"),
    # our key
    Refusal("openai key", 401, openai("Incorrect API key provided: sk-x", '"invalid_api_key"'), "auth"),
    Refusal("vllm key", 401, b'{"error":"Unauthorized"}', "auth"),
    Refusal("403 with a page", 403, CLOUDFLARE % b"Access denied", "auth"),
    Refusal("the key refused by 400", 400, openai("API key not valid", '"invalid_api_key"'), "auth"),
    Refusal("new-api channel key", 500, new_api("no key", "channel:no_available_key"), "auth"),
    Refusal("openrouter key in a 200", 0, openai("No auth credentials found", "401"), "auth"),
    # rates
    Refusal("openai rate", 429, openai("Rate limit reached", '"rate_limit_exceeded"', "requests"), "rate_limit"),
    Refusal("429 without a body", 429, b"", "rate_limit"),
    Refusal("one-api rate", 429, '{"error":{"message":"当前分组上游负载已饱和，请稍后再试"}}'.encode(), "rate_limit"),
    Refusal("a rate limit in a 200", 0, openai("slow down", '"rate_limit_exceeded"'), "rate_limit"),
    Refusal("openrouter rate in a 200", 0, openai("Rate limit exceeded: free-models-per-min", "429"), "rate_limit"),
    # time
    Refusal("408", 408, b"", "timeout"),
    Refusal("504 of nginx", 504, b"<html>504 Gateway Time-out</html>", "timeout"),
    Refusal("524 of Cloudflare", 524, CLOUDFLARE % b"524: A timeout occurred", "timeout"),
    Refusal("new-api time", 500, new_api("too slow", "channel:response_time_exceeded"), "timeout"),
    # useless answers
    Refusal("new-api body", 500, new_api("invalid character '<'", "bad_response_body"), "bad_response"),
    Refusal("new-api empty", 500, new_api("no response received", "empty_response"), "bad_response"),
    Refusal("an error without words in a 200", 0, b'{"error":{}}', "bad_response"),
    Refusal("a status beyond HTTP", 999, b"", "bad_response"),
    Refusal("not modified", 304, b"", "bad_response"),
    # load
    Refusal("vllm loading", 503, b"", "overloaded"),
    Refusal("vllm queue full", 503, openai("queue is full", "503", "ServiceUnavailable"), "overloaded"),
    Refusal("anthropic load", 529, openai("Overloaded", "null", "overloaded_error"), "overloaded"),
    Refusal("load by its words", 500, openai("That model is currently overloaded with other requests."), "overloaded"),
    Refusal("new-api channel", 500, new_api("failed", "get_channel_failed"), "overloaded"),
    # the rest
    Refusal("500", 500, openai("The server had an error", "null", "server_error"), "server_error"),
    Refusal("502 of Cloudflare", 502, CLOUDFLARE % b"502: Bad gateway", "server_error"),
    Refusal("vllm 500", 500, openai("EngineCore encountered an issue", "500", "InternalServerError"), "server_error"),
    Refusal("openrouter 502 in a 200", 0, openai("Provider returned error", "502"), "server_error"),
    Refusal("openai parameters", 400, openai("Unknown parameter: 'top_q'.", '"unknown_parameter"'), "bad_parameters"),
    Refusal("kimi temperature", 400, openai("invalid temperature: only 1 is allowed"), "bad_parameters"),
    Refusal("kimi tools", 400, openai("tools.0.function.parameters must have type object"), "bad_parameters"),
    Refusal("FastAPI 422", 422, b'{"detail":[{"loc":["body","n"],"msg":"not an int"}]}', "bad_parameters"),
    Refusal("a bare message", 422, b'{"message":"x"}', "bad_parameters"),
    Refusal("413", 413, b"<html>413 Request Entity Too Large</html>", "bad_parameters"),
    Refusal("400 in plain text", 400, b"Bad Request", "bad_parameters"),
    Refusal("bad parameters in a 200", 0, openai("temperature must be 1", "400"), "bad_parameters"),
)

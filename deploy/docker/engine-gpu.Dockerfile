# Your checkpoint on vLLM's own image for NVIDIA GPUs: that brings the CUDA libraries and compilers that fit it. The model
# is a folder mounted at /models/checkpoint; docker-compose.yml adds its flags.
FROM vllm/vllm-openai:v0.32.0
RUN useradd --system --uid 10001 --user-group --no-create-home turnout \
    && install -d -o turnout -g turnout /cache
ENV HOME=/cache VLLM_CACHE_ROOT=/cache/vllm HF_HUB_OFFLINE=1 TRANSFORMERS_OFFLINE=1 \
    VLLM_NO_USAGE_STATS=1 VLLM_DO_NOT_TRACK=1 PYTHONUNBUFFERED=1
WORKDIR /cache
USER 10001:10001
EXPOSE 8100
HEALTHCHECK --interval=10s --timeout=5s --start-period=1800s --retries=3 CMD ["python3", "-c", \
    "from http.client import HTTPConnection as C; c = C('127.0.0.1', 8100, timeout=4); c.request('GET', '/health'); exit(c.getresponse().status != 200)"]
ENTRYPOINT ["python3", "-m", "vllm.entrypoints.openai.api_server", "--host", "0.0.0.0", "--port", "8100", "--model", "/models/checkpoint"]
CMD ["--served-model-name", "checkpoint"]

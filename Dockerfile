# Serves a model over HTTP: the base install (no torch) and the extra serve, as a user without rights.
#   docker build -t longtail .
#   docker run --rm -p 127.0.0.1:8000:8000 -v "$PWD/runs/demo:/model:ro" longtail
FROM python:3.11-slim AS wheel
WORKDIR /source
COPY pyproject.toml README.md LICENSE ./
COPY src ./src
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

FROM python:3.11-slim
# For numba's threads: without it they are of a kind that only one thread may use at a time.
RUN apt-get update && apt-get install --yes --no-install-recommends libgomp1 && rm -rf /var/lib/apt/lists/*
COPY constraints.txt /tmp/constraints.txt
COPY --from=wheel /wheels /tmp/wheels
# Kernels are compiled here, so that the first question is answered at once.
RUN pip install --no-cache-dir --constraint /tmp/constraints.txt "$(echo /tmp/wheels/longtail-*.whl)[serve]" \
    && longtail warm-up \
    && rm -r /tmp/wheels /tmp/constraints.txt \
    && useradd --uid 10001 --create-home longtail
USER longtail
WORKDIR /home/longtail
EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 \
    CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8000/v2/health/ready', timeout=3)"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["longtail", "serve"]
CMD ["/model", "--host", "0.0.0.0"]

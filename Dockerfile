# docker build -t duologue . && docker run --network host -v duologue-models:/models duologue
FROM python:3.12-slim AS build
# The CPU build of torch; for GPUs: --build-arg TORCH_INDEX_URL=https://pypi.org/simple
ARG TORCH_INDEX_URL=https://download.pytorch.org/whl/cpu
WORKDIR /src
RUN python -m venv /venv
COPY pyproject.toml README.md LICENSE ./
RUN /venv/bin/pip install --no-cache-dir --index-url "$TORCH_INDEX_URL" \
    "$(sed -n 's/^ *"\(torch==[^"]*\)".*/\1/p' pyproject.toml)"
COPY units units
COPY server server
COPY benchmarks benchmarks
COPY client_web client_web
RUN /venv/bin/pip install --no-cache-dir .

FROM python:3.12-slim
RUN apt-get update && apt-get install -y --no-install-recommends libgomp1 && rm -rf /var/lib/apt/lists/* \
    && useradd --create-home --uid 10001 duologue \
    && install -d -o duologue -g duologue /models
COPY --from=build /venv /venv
USER duologue
WORKDIR /home/duologue
ENV PATH=/venv/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    DUOLOGUE_HOST=0.0.0.0 \
    DUOLOGUE_MODELS_DIR=/models \
    DUOLOGUE_FETCH_MODELS=true
VOLUME /models
EXPOSE 8080
HEALTHCHECK --interval=30s --start-period=15s CMD \
    ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8080/healthz', timeout=5)"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["duologue"]
CMD ["serve"]

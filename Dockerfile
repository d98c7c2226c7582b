# docker build -t duologue . && docker run --network host -v duologue-models:/models -v duologue-data:/data -e DUOLOGUE_API_KEY=... duologue
# For NVIDIA GPUs: --build-arg VARIANT=cuda. With the models inside: --build-arg MODELS=default (or their names).
# docs/deploy.md tells the rest.
ARG PYTHON_IMAGE=python:3.12-slim-bookworm

# hadolint ignore=DL3006
FROM ${PYTHON_IMAGE} AS wheel
WORKDIR /src
RUN python3 -m venv /venv && /venv/bin/pip install --no-cache-dir 'hatchling>=1.26'
COPY pyproject.toml README.md LICENSE ./
COPY units units
COPY server server
COPY benchmarks benchmarks
COPY client_web client_web
RUN /venv/bin/hatchling build --target wheel --directory /dist

# hadolint ignore=DL3006
FROM ${PYTHON_IMAGE}
# hadolint ignore=DL3008
RUN apt-get update && apt-get install -y --no-install-recommends libgomp1 && rm -rf /var/lib/apt/lists/* \
    && useradd --create-home --uid 10001 duologue \
    && install -d -o duologue -g duologue /models /data
ARG VARIANT=cpu
# What the server needs, in a layer that only a change of pyproject.toml makes anew.
# CTranslate2 looks for CUDA where the linker does: that is the last line, which does nothing without CUDA.
RUN --mount=type=cache,target=/root/.cache/pip \
    --mount=type=bind,source=pyproject.toml,target=/tmp/pyproject.toml \
    case "$VARIANT" in \
        cpu) extra="" ;; \
        cuda) extra=cuda ;; \
        *) echo "VARIANT is cpu or cuda, not $VARIANT" >&2; exit 2 ;; \
    esac \
    && python3 -c 'import sys, tomllib; project = tomllib.load(open("/tmp/pyproject.toml", "rb"))["project"]; \
extras = [*project["optional-dependencies"]["otel"], *project["optional-dependencies"].get(sys.argv[1], [])]; \
print(*project["dependencies"], *extras, sep="\n")' "$extra" >/wanted \
    && python3 -m venv /venv \
    && /venv/bin/pip install --requirement /wanted \
    && rm /wanted \
    && find /venv -path '*/nvidia/*/lib' -type d >/etc/ld.so.conf.d/nvidia.conf && ldconfig
COPY --from=wheel /dist /dist
RUN /venv/bin/pip install --no-cache-dir --no-index --no-deps /dist/*.whl
USER 10001:10001
WORKDIR /home/duologue
ENV PATH=/venv/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    DUOLOGUE_HOST=0.0.0.0 \
    DUOLOGUE_PORT=8080 \
    DUOLOGUE_MODELS_DIR=/models \
    DUOLOGUE_FETCH_MODELS=true \
    DUOLOGUE_KEYS_FILE=/data/keys.json \
    HF_HOME=/models/hub
ARG MODELS
# hadolint ignore=DL3059,SC2086
RUN test -z "$MODELS" || duologue models fetch ${MODELS#default}
VOLUME /models /data
EXPOSE 8080
HEALTHCHECK --interval=30s --timeout=10s --start-period=15s CMD ["python", "-c", "import os, urllib.request as r; \
r.urlopen('http://127.0.0.1:' + os.environ['DUOLOGUE_PORT'] + '/healthz', timeout=5)"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["duologue"]
CMD ["serve"]

# syntax=docker/dockerfile:1
# changeover and the app of a worker in one image; the command says which process runs.
#   docker build --build-arg APP_DIR=path/to/your/app -t my-agents .
ARG PYTHON=3.13

FROM python:${PYTHON}-slim AS build
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY producer producer
COPY worker worker
COPY shared shared
RUN pip wheel --no-cache-dir --wheel-dir /wheels '.[worker,openai,anthropic,encryption]'

FROM python:${PYTHON}-slim
# The wheels are those of this source: there is no version to pin.
# hadolint ignore=DL3013
RUN --mount=type=bind,from=build,source=/wheels,target=/wheels \
    pip install --no-cache-dir --no-index --find-links /wheels \
    'changeover[worker,openai,anthropic,encryption]'
RUN useradd --system --uid 10001 --home-dir /nonexistent changeover
ARG APP_DIR=examples/quickstart
WORKDIR /app
COPY ${APP_DIR} .
ENV PYTHONUNBUFFERED=1 \
    CHANGEOVER_HEALTH_BIND=0.0.0.0:8081
EXPOSE 8081
USER 10001
# In exec form, so that SIGTERM reaches the worker and no shell in front of it.
ENTRYPOINT ["changeover"]
CMD ["worker"]

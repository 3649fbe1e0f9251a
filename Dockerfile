# Two images from one file: `operator` (no torch) and `runtime` (engine and worker).
#
#   docker build --target operator -t torpor-operator .
#   docker build --target runtime  -t torpor-runtime  .
#
# The layer with the dependencies is made from a list of them alone, so a change of our own code
# builds, pushes and pulls a few hundred kilobytes. For packages from elsewhere than PyPI:
#
#   --build-arg PIP_INDEX_URL=https://pypi.example.com/simple
#   --secret id=ca,src=ca-bundle.pem --build-arg PIP_CERT=/run/secrets/ca
#
# Neither ends up in an image.

ARG BASE_IMAGE=python:3.11-slim-bookworm

FROM ${BASE_IMAGE} AS base
ENV PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    PATH=/opt/torpor/bin:/usr/local/bin:/usr/bin:/bin

FROM base AS tools
ARG UV_VERSION=0.13.9
ARG PIP_INDEX_URL
ARG PIP_FIND_LINKS
ARG PIP_CERT
RUN --mount=type=secret,id=ca python3 -m venv /opt/tools && /opt/tools/bin/pip install --quiet uv==${UV_VERSION}
COPY scripts/run_uv.py /opt/tools/

# What each image needs, pinned: the same bytes as long as none of it changes.
FROM tools AS lists
COPY pyproject.toml constraints.txt /source/
WORKDIR /source
ARG PIP_INDEX_URL
ARG PIP_FIND_LINKS
ARG PIP_CERT
RUN --mount=type=secret,id=ca compile() { /opt/tools/bin/python /opt/tools/run_uv.py pip compile --quiet --no-header --no-annotate \
    --no-emit-index-url --no-emit-find-links --constraint constraints.txt pyproject.toml "$@"; } \
    && compile --extra operator -o /source/operator.txt \
    && compile --extra engine --extra worker -o /source/runtime.txt

FROM tools AS wheel
COPY pyproject.toml README.md LICENSE constraints.txt /source/
COPY protocol /source/protocol
COPY engine /source/engine
COPY worker /source/worker
COPY operator /source/operator
WORKDIR /source
ARG PIP_INDEX_URL
ARG PIP_FIND_LINKS
ARG PIP_CERT
RUN --mount=type=secret,id=ca \
    /opt/tools/bin/python /opt/tools/run_uv.py build --wheel --build-constraints constraints.txt \
    --out-dir /wheel .

# Our own code in an environment of its own, which is laid over the one with the packages.
FROM tools AS project
COPY --from=wheel /wheel /wheel
RUN python3 -m venv --without-pip /opt/torpor && rm -f /opt/torpor/lib64 \
    && /opt/tools/bin/uv pip install --python /opt/torpor/bin/python --no-deps --no-cache --offline \
    --compile-bytecode /wheel/*.whl

# The tools are only mounted: these two stages become the images as they are, so that gigabytes of
# packages are written once and never copied.
FROM base AS operator-packages
COPY --from=lists /source/operator.txt /opt/torpor/packages.txt
ARG PIP_INDEX_URL
ARG PIP_FIND_LINKS
ARG PIP_CERT
RUN --mount=type=secret,id=ca --mount=type=bind,from=tools,source=/opt/tools,target=/opt/tools \
    python3 -m venv --without-pip /opt/torpor \
    && /opt/tools/bin/python /opt/tools/run_uv.py pip install --python /opt/torpor/bin/python \
    --no-cache --compile-bytecode -r /opt/torpor/packages.txt

FROM base AS runtime-packages
COPY --from=lists /source/runtime.txt /opt/torpor/packages.txt
ARG PIP_INDEX_URL
ARG PIP_FIND_LINKS
ARG PIP_CERT
RUN --mount=type=secret,id=ca --mount=type=bind,from=tools,source=/opt/tools,target=/opt/tools \
    python3 -m venv --without-pip /opt/torpor \
    && /opt/tools/bin/python /opt/tools/run_uv.py pip install --python /opt/torpor/bin/python \
    --no-cache --compile-bytecode -r /opt/torpor/packages.txt

# What changes least comes first: a layer is made anew after every line above it that changed.
# LOGNAME: libraries ask for the user's name, and whatever user a pod has is in no list of users.
FROM operator-packages AS operator
COPY --from=project /opt/torpor /opt/torpor
ENV LOGNAME=torpor
USER 10001:10001
ENTRYPOINT ["/opt/torpor/bin/python", "-m", "torpor_operator"]
ARG VERSION=0.1.0
LABEL org.opencontainers.image.title="torpor-operator" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.licenses="Apache-2.0"

FROM runtime-packages AS runtime
COPY --from=project /opt/torpor /opt/torpor
ENV LOGNAME=torpor
USER 10001:10001
ENTRYPOINT []
ARG VERSION=0.1.0
LABEL org.opencontainers.image.title="torpor-runtime" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.licenses="Apache-2.0"

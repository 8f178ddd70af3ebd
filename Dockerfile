# syntax=docker/dockerfile:1
# One image per service: docker build --build-arg SERVICE=gateway --tag koord-gateway:dev .
ARG PYTHON=3.11-slim

# Every locked package, checked by its hash, and koord's own wheel. The same for all services, so built once.
FROM python:${PYTHON} AS wheels
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /src
COPY requirements/build.txt requirements/run.txt requirements/
RUN python -m venv /build \
    && /build/bin/pip install --require-hashes --no-build-isolation -r requirements/build.txt \
    && /build/bin/pip download --require-hashes --no-deps --only-binary :all: --dest /wheels -r requirements/run.txt
COPY pyproject.toml README.md LICENSE ./
COPY libs libs
COPY services services
RUN /build/bin/pip wheel --no-deps --no-build-isolation --wheel-dir /wheels .

# What one service needs of it, resolved among those wheels alone.
FROM wheels AS installed
ARG SERVICE
RUN test -n "${SERVICE}" || { echo "build with --build-arg SERVICE=gateway|reconciler|queue|quota|scheduler"; exit 1; }
RUN python -m venv --without-pip /opt/koord \
    && /build/bin/pip --python /opt/koord/bin/python install --no-index --find-links /wheels "koord[${SERVICE}]" \
    && /opt/koord/bin/python -m compileall -q /opt/koord/lib \
    && /opt/koord/bin/koord run "${SERVICE}" --help > /dev/null \
    && /opt/koord/bin/python -c "from koord.runtime.service import find; find('${SERVICE}')"

FROM python:${PYTHON}
ARG SERVICE
LABEL org.opencontainers.image.title="koord-${SERVICE}" \
      org.opencontainers.image.description="QoS-based scheduling and co-location for Kubernetes: the ${SERVICE} service" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=installed /opt/koord /opt/koord
# The root file system is read-only: nothing is compiled, nothing is written but to /tmp.
ENV PATH=/opt/koord/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 HOME=/tmp
USER 65532:65532
WORKDIR /tmp
# koord handles SIGTERM itself and starts no processes that need a reaper.
ENTRYPOINT ["koord"]
CMD ["--help"]
EXPOSE 8080

# wick as an image: the server with its page, as a user who is not root, with Python for the scripts of skills.
#
#   docker build -t wick .
#   docker run --init -e WICK_TOKEN="$(openssl rand -hex 32)" -p 127.0.0.1:8000:8000 -v wick:/data wick
#
# It builds with any builder, also one without BuildKit. What is in a folder `wheelhouse` is installed from there, and
# nothing is fetched then; a page that is built already (make ui) is taken as it is.
ARG PYTHON=python:3.13-slim
ARG NODE=node:22-slim

FROM ${NODE} AS page
WORKDIR /wick
COPY ui ui
COPY src/wick/server src/wick/server
RUN if [ -f src/wick/server/ui/index.html ]; then echo "the page is built already"; else \
        cd ui && npm install --no-save --no-audit --no-fund --loglevel=error && npx --no-install vite build --logLevel warn; fi

FROM ${PYTHON} AS installed
WORKDIR /wick
COPY pyproject.toml README.md LICENSE wheelhous[e] wheelhouse/
COPY pyproject.toml README.md LICENSE ./
COPY scripts scripts
COPY src src
COPY --from=page /wick/src/wick/server/ui src/wick/server/ui
RUN if ls wheelhouse/*.whl >/dev/null 2>&1; then export PIP_NO_INDEX=1 PIP_FIND_LINKS=/wick/wheelhouse; fi; \
    python3 -m venv /opt/wick && \
    /opt/wick/bin/python -m pip install --no-cache-dir --disable-pip-version-check '.[server,postgres,nats,mcp]' && \
    /opt/wick/bin/python -m pip uninstall --yes --quiet pip setuptools

FROM ${PYTHON}
# Written by hand: not every base has a program that adds users.
RUN echo 'wick:x:10001:10001:wick:/data:/bin/sh' >>/etc/passwd && echo 'wick:x:10001:' >>/etc/group && \
    mkdir -p /data && chown 10001:10001 /data && chmod 700 /data
COPY --from=installed /opt/wick /opt/wick
ENV PATH=/opt/wick/bin:$PATH \
    HOME=/data \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    WICK_DATA=/data \
    WICK_HOST=0.0.0.0 \
    WICK_PORT=8000
USER 10001:10001
WORKDIR /data
VOLUME /data
EXPOSE 8000
HEALTHCHECK --interval=15s --timeout=5s --start-period=30s CMD ["python3", "-c", \
    "import os, urllib.request as web; web.urlopen(f\"http://127.0.0.1:{os.environ['WICK_PORT']}/health\", timeout=4)"]
ENTRYPOINT ["wick"]
CMD ["serve"]

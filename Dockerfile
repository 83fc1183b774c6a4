# Images of cc-tts: `--target runtime` (the last stage, the default), `--target runtime-ray` and `--target runtime-gpu`.
# What was run of it and what was not: docs/operators/install.md, "Docker".

# Pinned by tag. For a build that cannot change give a digest: --build-arg DEBIAN=debian@sha256:…
ARG DEBIAN=debian:bookworm-20250520-slim
ARG DEBIAN_SID=debian:sid-20250520-slim

# --- the server build of pjsua2: four minutes on two cores; only sip/pjproject/ decides whether it is built again
FROM ${DEBIAN} AS pjproject
SHELL ["/bin/bash", "-o", "pipefail", "-c"]
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends build-essential ca-certificates curl dpkg-dev libopus-dev \
       libsamplerate0-dev libsrtp2-dev libssl-dev pkg-config python3 python3-dev swig uuid-dev xz-utils \
    && rm -rf /var/lib/apt/lists/*
COPY sip/pjproject /src/sip/pjproject
RUN PJPROJECT_WORK=/tmp/pjproject /src/sip/pjproject/build.sh /opt/pjsua2 \
    && rm -rf /tmp/pjproject

# --- Python packages, each held against the hash in the lock file
FROM ${DEBIAN} AS wheels
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends ca-certificates python3 python3-venv \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY requirements/default.lock requirements/vad.txt requirements/remote.txt requirements/kokoro.txt requirements/otel.txt requirements/
# The wheel of pjsua2 goes again: the server build takes its place.
RUN python3 -m venv /opt/cc-tts \
    && /opt/cc-tts/bin/pip install --no-cache-dir --disable-pip-version-check --require-hashes -r requirements/default.lock -r requirements/vad.txt -r requirements/remote.txt -r requirements/kokoro.txt -r requirements/otel.txt \
    && /opt/cc-tts/bin/pip uninstall --yes --quiet pjsua2-python
COPY pyproject.toml README.md LICENSE ./
COPY cc_tts cc_tts
COPY configs configs
COPY sip/pjproject sip/pjproject
RUN /opt/cc-tts/bin/pip install --no-cache-dir --disable-pip-version-check --no-deps --no-build-isolation . \
    && echo /opt/pjsua2 > "$(/opt/cc-tts/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/pjsua2.pth"

# --- the same with Ray, for `cc-tts pool` and its cluster
FROM wheels AS wheels-ray
COPY requirements/ray.txt requirements/
RUN /opt/cc-tts/bin/pip install --no-cache-dir --disable-pip-version-check --require-hashes -r requirements/ray.txt

# --- the same with Ray and PyTorch for CUDA
FROM wheels AS wheels-gpu
# gpu-cuda12.lock is for drivers older than 580.
ARG GPU_LOCK=gpu.lock
COPY requirements/gpu.lock requirements/gpu-cuda12.lock requirements/
RUN /opt/cc-tts/bin/pip install --no-cache-dir --disable-pip-version-check --require-hashes -r "requirements/${GPU_LOCK}"

# --- what both images stand on. espeak-ng and its voices come in the wheel espeakng_loader
FROM ${DEBIAN} AS base
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends ca-certificates libopus0 libsamplerate0 libsrtp2-1 libssl3 libstdc++6 \
       libuuid1 python3 \
    && rm -rf /var/lib/apt/lists/* \
    && groupadd --gid 10001 cc-tts \
    && useradd --uid 10001 --gid 10001 --home-dir /nonexistent --no-create-home --shell /usr/sbin/nologin cc-tts \
    && install --directory --owner 10001 --group 10001 /cache
COPY --from=pjproject /opt/pjsua2 /opt/pjsua2
COPY configs/cc_tts.toml configs/cc_tts.gpu.toml configs/first_call.toml /etc/cc-tts/
ENV PATH=/opt/cc-tts/bin:$PATH \
    HOME=/tmp \
    PYTHONUNBUFFERED=1 \
    CC_TTS_PJSUA2=/opt/pjsua2 \
    CC_TTS_SIP__HOST=0.0.0.0
USER 10001:10001
WORKDIR /
# SIP, media, control API (which listens on loopback until http.host and http.tokens say otherwise)
EXPOSE 5060/udp 5060/tcp 16384-16584/udp 8080/tcp
STOPSIGNAL SIGTERM
# It asks what runs here, server, worker or pool, where that listens.
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=3 \
    CMD ["cc-tts", "health"]
ARG REVISION=unknown
LABEL org.opencontainers.image.title="cc-tts" \
      org.opencontainers.image.description="A SIP user agent that speaks text on calls" \
      org.opencontainers.image.version="0.1.0" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.licenses="GPL-3.0-or-later"
ENTRYPOINT ["cc-tts"]

# --- a PBX to try it with (docker-compose.yml): Asterisk 22 of Debian, which only sid has
FROM ${DEBIAN_SID} AS asterisk
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends asterisk \
    && rm -rf /var/lib/apt/lists/*
# hadolint ignore=DL3066
USER asterisk
ENTRYPOINT ["asterisk", "-f"]

FROM base AS runtime-ray
COPY --from=wheels-ray /opt/cc-tts /opt/cc-tts
USER root
# KubeRay starts Ray by a shell that may not have our PATH.
RUN ln -s /opt/cc-tts/bin/ray /usr/local/bin/ray
USER 10001:10001
CMD ["pool", "--help"]

FROM base AS runtime-gpu
# The driver's libraries come from the NVIDIA container toolkit; CUDA itself is in the wheels.
ENV NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility
COPY --from=wheels-gpu /opt/cc-tts /opt/cc-tts
# Triton and torch.compile build their launchers with a C compiler when they are first used, and keep them here.
USER root
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends gcc libc6-dev python3-dev \
    && rm -rf /var/lib/apt/lists/* \
    && install -d -o cc-tts -g cc-tts /var/cache/cc-tts \
    && ln -s /opt/cc-tts/bin/ray /usr/local/bin/ray
ENV TRITON_CACHE_DIR=/var/cache/cc-tts/triton \
    TORCHINDUCTOR_CACHE_DIR=/var/cache/cc-tts/inductor
USER 10001:10001
VOLUME ["/models", "/voices", "/var/cache/cc-tts"]
HEALTHCHECK --interval=10s --timeout=5s --start-period=600s --retries=3 \
    CMD ["cc-tts", "health"]
CMD ["serve", "--config", "/etc/cc-tts/cc_tts.gpu.toml"]

FROM base AS runtime
COPY --from=wheels /opt/cc-tts /opt/cc-tts
# Every caller hears a greeting. A configuration of yours takes its place: serve --config FILE
CMD ["serve", "--config", "/etc/cc-tts/first_call.toml"]

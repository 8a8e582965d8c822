# The environment of requirements.lock, and headdiv in it; trained models stay in the volume headdiv-work:
#   docker build -t headdiv --build-arg COMMIT="$(git describe --always --abbrev=12 --exclude '*' --dirty=+changes)" .
#   docker run --rm -v "$PWD/results:/headdiv/results" -v headdiv-work:/headdiv/work headdiv
# torch is its build for the CPU; another one is named by uv's word for it: --build-arg TORCH=cu130 (docker run --gpus all).
FROM python:3.11-slim
RUN apt-get update && apt-get install --yes --no-install-recommends git make && rm -rf /var/lib/apt/lists/*
WORKDIR /headdiv
COPY requirements.lock ./
ARG TORCH=cpu
RUN pip install --no-cache-dir uv \
    && uv pip install --system --no-cache --torch-backend "$TORCH" "$(grep '^torch==' requirements.lock)" \
    && pip install --no-cache-dir -r requirements.lock
COPY . .
RUN pip install --no-cache-dir --no-deps -e .
# What metrics call the commit, since the image has no history.
ARG COMMIT=
ENV HEADDIV_COMMIT=$COMMIT
VOLUME /headdiv/work
CMD ["snakemake", "reproduce-all", "--cores", "all"]

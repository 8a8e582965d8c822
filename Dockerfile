# The environment of requirements.lock, and headdiv in it:
#   docker build -t headdiv . && docker run --rm -v "$PWD/results:/headdiv/results" headdiv
FROM python:3.11-slim
RUN apt-get update && apt-get install --yes --no-install-recommends git make && rm -rf /var/lib/apt/lists/*
WORKDIR /headdiv
COPY requirements.lock ./
RUN pip install --no-cache-dir -r requirements.lock
COPY . .
RUN pip install --no-cache-dir --no-deps -e .
CMD ["snakemake", "reproduce-all", "--cores", "all"]

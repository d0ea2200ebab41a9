GO      ?= go
VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
COMMIT  := $(shell git rev-parse --short=12 HEAD 2>/dev/null || echo unknown)

# How long each fuzz target runs, and how often the lifecycle tests, in make soak.
SOAK_FUZZ  ?= 5m
SOAK_COUNT ?= 200

.PHONY: build check test vllm lint bench soak clean

build:
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags "-s -w -X main.version=$(VERSION) -X main.commit=$(COMMIT)" -o bin/stator ./cmd/stator

# check is for while you work: everything but the race detector and fuzzing.
check: lint
	$(GO) test ./...

# test is what has to pass.
test: lint
	$(GO) test -race ./...
	$(GO) test ./internal/simengine ./internal/replay ./internal/thompson ./internal/tokenize/normal ./internal/kvindex ./internal/indexserver
	dir=$$(scripts/oracle/setup.sh) && STATOR_ORACLE=$$dir $(GO) test -count=1 -timeout 20m ./internal/tokenize/oracletest
	dir=$$(scripts/zmq/setup.sh) && STATOR_ZMQ=$$dir $(GO) test -count=1 -timeout 10m ./internal/zmtp
	dir=$$(scripts/llama/setup.sh) && STATOR_LLAMA=$$dir $(GO) test -count=1 -timeout 10m ./internal/llamatest
	dir=$$(scripts/prometheus/setup.sh) && STATOR_PROMETHEUS=$$dir $(GO) test -count=1 -parallel 6 -timeout 10m ./internal/promtest
	scripts/node/test.sh
	scripts/fuzz.sh 1s

# vllm tries everything with a real vLLM on a processor, which takes gigabytes and minutes.
vllm:
	dir=$$(scripts/vllm/setup.sh) && STATOR_VLLM=$$dir nice -n 10 $(GO) test -count=1 -timeout 30m ./internal/vllmtest

lint:
	@unformatted=$$(gofmt -l .); if [ -n "$$unformatted" ]; then echo "not formatted:"; echo "$$unformatted"; exit 1; fi
	$(GO) vet ./...
	$(GO) tool staticcheck ./...

bench:
	$(GO) run ./bench

# soak looks for what takes time to find.
soak:
	scripts/fuzz.sh $(SOAK_FUZZ)
	$(GO) test -race -run Lifecycle -count $(SOAK_COUNT) -timeout 0 ./...
	$(GO) test -run Naive -timeout 0 ./internal/simengine -naive.seeds 20000
	$(GO) test -run Property -timeout 0 ./internal/kvindex -kvindex.seeds 500

clean:
	rm -rf bin

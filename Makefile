# `make test` is all that CI runs. It needs Go and Node.js, and installs what else it needs.

GOFUMPT     = go run mvdan.cc/gofumpt@v0.12.0
STATICCHECK = go run honnef.co/go/tools/cmd/staticcheck@v0.8.2

.PHONY: test lint azurite

test: azurite lint
	go test -race -timeout 30m ./...

lint:
	go vet ./...
	@unformatted=$$($(GOFUMPT) -l .); test -z "$$unformatted" || { echo "gofumpt would change:"; echo "$$unformatted"; exit 1; }
	$(STATICCHECK) ./...

# Azurite, the reference service, at the version that its lock file pins.
azurite:
	npm ci --prefix internal/azurite --no-progress --loglevel=error

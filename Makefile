# `make test` is all that CI runs. It needs Go and Node.js 20 or later, and installs what else it needs.

GOFUMPT     = go run mvdan.cc/gofumpt@v0.12.0
STATICCHECK = go run honnef.co/go/tools/cmd/staticcheck@v0.8.2

# The tests make much garbage and keep little: to collect less often saves a quarter of the processor time.
export GOGC       = 400
export GOMEMLIMIT = 6GiB

.PHONY: test lint azurite

# Everything once as it is, and once more under the race detector, where the long spaces are cut short; then the
# costs of all operations, held against their budgets.
test: azurite lint
	go test -parallel 4 -timeout 40m ./...
	go test -race -short -timeout 40m ./...
	go run ./bench -short

lint:
	go vet ./...
	@unformatted=$$($(GOFUMPT) -l .); test -z "$$unformatted" || { echo "gofumpt would change:"; echo "$$unformatted"; exit 1; }
	$(STATICCHECK) ./...

# Azurite, the reference service, at the version that its lock file pins. Its package asks for Node.js 22, about which npm
# only warns; 20.20 and 22.23 are tested.
azurite:
	npm ci --prefix internal/azurite --no-progress --loglevel=error

# Every fuzz target in turn, FUZZTIME each.
FUZZTIME = 30s
.PHONY: fuzz
fuzz:
	@for p in $$(go list ./...); do \
		for f in $$(go test -list '^Fuzz' $$p | grep ^Fuzz); do \
			echo "$$p $$f"; go test -run '^$$' -fuzz "^$$f$$" -fuzztime $(FUZZTIME) $$p || exit 1; \
		done; \
	done

# Changes of the code, each of which some test must notice: those of the list, 100 random ones that are always the same, and
# 100 new ones.
.PHONY: mutants
mutants:
	go run ./internal/mutants
	go run ./internal/mutants -random 100
	go run ./internal/mutants -random 100 -seed 0

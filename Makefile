# `make test` is all that CI runs. It needs Go and Node.js 20 or later, and installs everything else.

GOFUMPT     = go run mvdan.cc/gofumpt@v0.12.0
STATICCHECK = go run honnef.co/go/tools/cmd/staticcheck@v0.8.2

# The tests allocate much and keep little. Collecting less often saves a quarter of the processor time.
export GOGC       = 400
export GOMEMLIMIT = 6GiB

.PHONY: test lint unit race budgets azurite verify fuzz mutants

# What the race detector need not see: packages that start no goroutines, and harnesses that run vaults concurrently, which
# the tests of the vaults do under the detector.
UNRACED = bench|integration|internal/(azurite|azurite/azuritetest|efforttest|goldentest|mutants|protocol)|plugins|examples/engine/plugins|storage|storage/(driver|storagetest|storagetest/metamorphic)|workflow|workflow/plantest

# All tests, the tests under the race detector with -short, and the request budgets, two at a time, because each of them has
# stretches that keep one core busy. `make lint` runs go vet.
test:
	@$(MAKE) --no-print-directory -j 2 lint unit race budgets

unit: azurite
	go test -vet=off -parallel 4 -timeout 20m ./...
	go -C azblobotel test -vet=off ./...

race: azurite
	go test -vet=off -race -short -timeout 20m $$(go list ./... | grep -vE '/($(UNRACED))$$')

budgets:
	go run ./bench -short

# gofumpt looks at all folders, the others at one module.
lint:
	go vet ./...
	go -C azblobotel vet ./...
	@unformatted=$$($(GOFUMPT) -l .); test -z "$$unformatted" || { echo "gofumpt would change:"; echo "$$unformatted"; exit 1; }
	$(STATICCHECK) ./...
	cd azblobotel && $(STATICCHECK) ./...

# Azurite is the reference service, at the version that its lock file pins. Its package asks for Node.js 22, and npm only
# warns about an older one. Node.js 20.20 and 22.23 are tested. npm runs only when the lock file has changed.
azurite: internal/azurite/node_modules/.package-lock.json

internal/azurite/node_modules/.package-lock.json: internal/azurite/package-lock.json
	npm ci --prefix internal/azurite --no-progress --loglevel=error
	touch $@

# The long campaigns: whole spaces where `make test` explores samples, a soak and a fleet under chaos against the emulator
# and against Azurite, processor time against its budgets, and every fuzz target. It takes hours.
verify: azurite
	PLANVAULT_LONG=1 go test -timeout 0 ./...
	go -C azblobotel test -race ./...
	go run ./bench -cpu
	go run ./integration -soak 10m -clients 8 -faults
	go run ./integration -azurite -soak 10m -clients 8 -faults -grace 10s
	go run ./integration -fleet 8 -chaos 30m -plans 10000 -interval 2s -faults
	go run ./integration -azurite -fleet 5 -chaos 10m -interval 2s -faults -grace 10s
	$(MAKE) fuzz

# Every fuzz target in turn, FUZZTIME each.
FUZZTIME = 30s
fuzz:
	@for p in $$(go list ./...); do \
		for f in $$(go test -list '^Fuzz' $$p | grep ^Fuzz); do \
			echo "$$p $$f"; go test -run '^$$' -fuzz "^$$f$$" -fuzztime $(FUZZTIME) $$p || exit 1; \
		done; \
	done

# Changes of the code that the tests must notice: the list, 100 random changes that are always the same, and 100 new ones.
mutants:
	go run ./internal/mutants
	go run ./internal/mutants -random 100
	go run ./internal/mutants -random 100 -seed 0

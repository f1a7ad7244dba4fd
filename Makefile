# `make test` is all that CI runs. It needs Go and Node.js 20 or later, and installs everything else.

GOFUMPT     = go run mvdan.cc/gofumpt@v0.12.0
STATICCHECK = go run honnef.co/go/tools/cmd/staticcheck@v0.8.2
APIDIFF     = go run golang.org/x/exp/cmd/apidiff@v0.0.0-20261014143641-f0251eb4aa3e
GOVULNCHECK = golang.org/x/vuln/cmd/govulncheck@v1.8.0
GOLANGCI    = go run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
GREMLINS    = github.com/go-gremlins/gremlins/cmd/gremlins@v0.6.0
PROMTOOL    = github.com/prometheus/prometheus/cmd/promtool@v0.316.0

# The tests allocate much and keep little. Collecting less often saves a quarter of the processor time, and
# without the race detector there is memory for still less.
export GOGC       = 400
export GOMEMLIMIT = 6GiB
unit: export GOGC       = 1600
unit: export GOMEMLIMIT = 2GiB

.PHONY: man test lint golangci unit race azurite verify alerts image supply vuln apidiff fuzz mutants

# What the race pass leaves to `make verify`: packages that start no goroutines, and programs and harnesses that run vaults
# and engines concurrently, which the tests of these do under the detector.
UNRACED = cmd/planvault/internal/(human|report|sample)|examples/(engine|placed)|integration|internal/(azurite|azurite/azuritetest|catalogue|conformance|efforttest|firsthour|goldentest|hooked|oracle|price|processtest|protocol|same|secrets|trial|vaulttest)|plugins|plugins/registry|storage|storage/(driver|storagetest|storagetest/metamorphic)|tests/(costs|module)|workflow|internal/plantest

# All tests, and the tests under the race detector with -short, two at a time, because each of them has stretches that keep one
# core busy. `make lint` runs go vet.
test:
	@$(MAKE) --no-print-directory -j 2 lint unit race

unit: azurite
	go test -vet=off -parallel 4 -timeout 20m ./...
	go -C azblobotel test -vet=off ./...
	go -C deploy test -vet=off ./...
	go -C temporal test -vet=off ./...

race: azurite
	go test -vet=off -race -short -timeout 20m $$(go list ./... | grep -vE '/($(UNRACED))$$')

# gofumpt looks at all folders, the others at one module.
lint:
	go vet ./...
	go -C azblobotel vet ./...
	go -C deploy vet ./...
	go -C temporal vet ./...
	go -C examples/river vet ./...
	@unformatted=$$($(GOFUMPT) -l .); test -z "$$unformatted" || { echo "gofumpt would change:"; echo "$$unformatted"; exit 1; }
	$(STATICCHECK) ./...
	cd azblobotel && $(STATICCHECK) ./...
	cd deploy && $(STATICCHECK) ./...
	cd temporal && $(STATICCHECK) ./...
	cd examples/river && $(STATICCHECK) ./...

# A longer list of lints, in .golangci.yml. To build them takes minutes.
golangci:
	$(GOLANGCI) run ./...
	cd azblobotel && $(GOLANGCI) run ./...
	cd deploy && $(GOLANGCI) run ./...
	cd temporal && $(GOLANGCI) run ./...
	cd temporal/tests && $(GOLANGCI) run ./...
	cd examples/river && $(GOLANGCI) run ./...

# Azurite is the reference service, at the version that its lock file pins. Its package asks for Node.js 22, and npm only
# warns about an older one. Node.js 20.20 and 22.23 are tested. npm runs only when the lock file has changed.
azurite: internal/azurite/node_modules/.package-lock.json

internal/azurite/node_modules/.package-lock.json: internal/azurite/package-lock.json
	npm ci --prefix internal/azurite --no-progress --loglevel=error
	touch $@

# The long campaigns: spaces of which `make test` explores samples, each for LONG; weeks of a fleet in virtual time, for WEEKS; a
# soak against the emulator and against Azurite, and a fleet of processes that are killed and frozen, for CAMPAIGN each; processor
# time against its budgets; every fuzz target; and the mutants, for 10 minutes a package. With these values it takes two hours and a
# half on two cores. LONG=1 explores whole spaces.
LONG     = 30s
WEEKS    = 15m
CAMPAIGN = 4m
verify: azurite supply apidiff alerts image golangci
	PLANVAULT_LONG=$(LONG) go test -vet=off -timeout 0 ./...
	go test -vet=off -race -timeout 0 ./...
	go -C azblobotel test -vet=off -race ./...
	go -C temporal test -vet=off -race ./...
	go -C temporal/tests vet ./...
	go -C temporal/tests test -vet=off -count=1 -timeout 30m -v ./...
	PLANVAULT_LONG=1 go -C examples/river test -vet=off -count=1 -v ./...
	go test -count=1 -run '^Test(CPU|Engine)Budgets$$' -v ./tests/costs -args -ratios
	go test -count=1 -run '^TestCPUBudgets$$' -v ./tests/costs -args -ratios -token
	go run ./integration -real -soak $(CAMPAIGN) -clients 8 -faults
	go run ./integration -azurite -soak $(CAMPAIGN) -clients 8 -faults -grace 10s
	go run ./integration -real -fleet 8 -chaos $(CAMPAIGN) -plans 10000 -interval 2s -faults
	go run ./integration -fleet 8 -chaos 2m -plans 500 -keys 20 -interval 2s -faults
	PLANVAULT_LONG=$(WEEKS) go test -vet=off -timeout 0 ./tests/week
	$(MAKE) fuzz
	$(MAKE) mutants

# Prometheus's own tool reads docs/alerts.yml, and says which alerts fire on what engines measure in virtual time. To build it
# takes minutes.
alerts:
	@dir=$$(mktemp -d); trap 'rm -rf "$$dir"' EXIT; GOBIN=$$dir go install $(PROMTOOL) && \
	$$dir/promtool check rules docs/alerts.yml && PROMTOOL=$$dir/promtool go -C azblobotel test -count=1 -run '^TestAlerts$$' -v .

# The images of the tool and of the example, each built twice, with their sizes.
image:
	PLANVAULT_LONG=1 go -C deploy test -count=1 -timeout 30m -run '^TestBuiltTwice$$' -v ./image

# The dependencies are those of go.sum, and have no known vulnerability that this module calls.
supply: vuln
	go mod verify

# govulncheck ends with 3 if it finds a vulnerability. Without its data, from vuln.go.dev, it finds nothing out, and that is
# no failure of this module. `go run` would hide the 3.
vuln:
	@dir=$$(mktemp -d); trap 'rm -rf "$$dir"' EXIT; GOBIN=$$dir go install $(GOVULNCHECK) || exit 1; \
	$$dir/govulncheck ./... >$$dir/out 2>&1; status=$$?; cat $$dir/out; \
	if grep -q '^govulncheck: fetching vulnerabilities' $$dir/out; then \
		echo "vuln: NOT CHECKED: the data about vulnerabilities can't be reached"; exit 0; \
	fi; exit $$status

# What has changed in the exported API since the last tag. From v1 on, an incompatible change fails.
MODULE = github.com/planvault/azblob
apidiff:
	@tag=$$(git describe --tags --abbrev=0 --match 'v[0-9]*' 2>/dev/null) || { echo "apidiff: there is no tag yet to compare with"; exit 0; }; \
	dir=$$(mktemp -d); trap 'git worktree remove --force "$$dir/tag"; rm -rf "$$dir"' EXIT; \
	git worktree add --quiet --detach "$$dir/tag" "$$tag" && (cd "$$dir/tag" && $(APIDIFF) -m -w "$$dir/old" $(MODULE)) && \
	$(APIDIFF) -m -w "$$dir/new" $(MODULE) && $(APIDIFF) -m "$$dir/old" "$$dir/new" && \
	$(APIDIFF) -m -incompatible "$$dir/old" "$$dir/new" >"$$dir/breaks" || exit 1; \
	case $$tag in v0.*) ;; *) if test -s "$$dir/breaks"; then echo "apidiff: incompatible changes since $$tag"; exit 1; fi;; esac

# Every fuzz target in turn, FUZZTIME each.
FUZZTIME = 15s
fuzz:
	@for p in $$(go list ./...); do \
		for f in $$(go test -list '^Fuzz' $$p | grep ^Fuzz); do \
			echo "$$p $$f"; go test -run '^$$' -fuzz "^$$f$$" -fuzztime $(FUZZTIME) $$p || exit 1; \
		done; \
	done

# gremlins changes the code of the packages MUTANTS in one place at a time, and prints the changes that LIVED: no test of the
# package fails. It stops after MUTANTS_TIME for each package. MUTATE has more of its flags: with MUTANTS=. and
# MUTATE="--integration --coverpkg ./... --diff main" it changes the lines that a branch changes, and runs all tests of the module.
MUTANTS      = ./internal/listing ./storage/driver
MUTANTS_TIME = 10m
MUTATE       =
mutants:
	@dir=$$(mktemp -d); trap 'rm -rf "$$dir"' EXIT; GOBIN=$$dir go install $(GREMLINS) || exit 1; \
	for p in $(MUTANTS); do \
		echo "mutants of $$p:"; \
		TMPDIR=$$dir GOFLAGS=-short timeout -s INT -k 30 $(MUTANTS_TIME) $$dir/gremlins unleash --output-statuses l \
			--timeout-coefficient 5 --invert-logical --invert-loopctrl $(MUTATE) $$p; \
		case $$? in 0|124|137) ;; *) exit 1;; esac; \
	done

# The man pages of the tool, one for each command and each topic of its help, in the folder MAN.
MAN = man
man:
	go test -count=1 -run '^TestMan$$' ./cmd/planvault -args -man $(abspath $(MAN))

# Each target is one step; `make help` lists them.
.DEFAULT_GOAL := help

GO       ?= go
VERSION  := $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
# The clock is never right before this; the commit's time, so that builds repeat.
BUILT    := $(shell git log -1 --format=%cI 2>/dev/null)
# -s -w leaves out symbols and debug data: a third of the size.
GOBUILD  := CGO_ENABLED=0 $(GO) build -trimpath -ldflags "-s -w -X main.version=$(VERSION) -X main.built=$(BUILT)"
BINARIES := sluice sluice-collector
FUZZTIME ?= 3s

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## sluice, sluice-collector and sluice-lab for this machine, into bin/
	$(GOBUILD) -o bin/ ./cmd/...

cross: cross-arm64 cross-armv7 cross-armv6 ## for Linux on ARM, into bin/<os>-<arch>/
	@wc -c bin/linux-arm64/sluice | awk '{ printf "%s, stripped: %.1f MB\n", $$2, $$1 / 1e6 }'

cross-arm64: ARM := GOARCH=arm64
cross-armv7: ARM := GOARCH=arm GOARM=7
cross-armv6: ARM := GOARCH=arm GOARM=6
cross-arm64 cross-armv7 cross-armv6: cross-%:
	GOOS=linux $(ARM) $(GOBUILD) -o bin/linux-$*/ $(BINARIES:%=./cmd/%)

run: build ## gateway, collector and recorded sensor data, with a live status; Ctrl-C stops
	@bin/sluice-lab live --dir var

demo: build ## a fixed amount of data, checked at the far end
	@bin/sluice-lab demo

# The collector takes minutes for each ARM where nothing is built yet.
test: BINARIES := sluice
test: tools lint unit guest image-test fuzz cross ## everything that must pass

tools: # what the tests need from Debian's packages
	@missing=; \
	command -v mosquitto >/dev/null || test -x /usr/sbin/mosquitto || missing="$$missing mosquitto"; \
	command -v mosquitto_pub >/dev/null || missing="$$missing mosquitto-clients"; \
	command -v gcc >/dev/null || missing="$$missing gcc libc6-dev"; \
	command -v qemu-system-aarch64 >/dev/null && command -v qemu-system-arm >/dev/null || missing="$$missing qemu-system-arm"; \
	command -v qemu-system-x86_64 >/dev/null || missing="$$missing qemu-system-x86"; \
	command -v xz >/dev/null || missing="$$missing xz-utils"; \
	command -v depmod >/dev/null || test -x /sbin/depmod || missing="$$missing kmod"; \
	test -f /usr/share/keyrings/debian-archive-keyring.gpg || missing="$$missing debian-archive-keyring"; \
	command -v ns >/dev/null || missing="$$missing ns2"; \
	command -v rauc >/dev/null || missing="$$missing rauc"; \
	command -v mksquashfs >/dev/null || missing="$$missing squashfs-tools"; \
	command -v mke2fs >/dev/null || test -x /sbin/mke2fs || missing="$$missing e2fsprogs"; \
	command -v mkfs.vfat >/dev/null || test -x /sbin/mkfs.vfat || missing="$$missing dosfstools"; \
	command -v mcopy >/dev/null || missing="$$missing mtools"; \
	command -v mkimage >/dev/null || missing="$$missing u-boot-tools"; \
	test -f /usr/lib/u-boot/qemu_arm64/u-boot.bin || missing="$$missing u-boot-qemu"; \
	test -z "$$missing" && exit 0; \
	if [ "$$(id -u)" = 0 ]; then \
		apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends $$missing; \
	else \
		echo "the tests need Debian packages; run: sudo apt-get install$$missing" >&2; exit 1; \
	fi

lint: # form and doubtful constructs, also of what other systems compile
	@files=$$(gofmt -l $$(git ls-files '*.go')); test -z "$$files" || { echo "run gofmt -w on:" $$files >&2; exit 1; }
	$(GO) vet ./...
	GOOS=darwin $(GO) build ./...

unit: # all tests, those that kill the real programs included
	$(GO) test -race -shuffle=on -timeout 9m -skip '^Test(Guest|Image.*)$$' ./...

# Alone, since an emulated processor has no time to share. The first run
# downloads Debian's kernels into var/lab.
guest: # the tests that need SCTP, netem and WireGuard, and ARM, in QEMU
	$(GO) test -count=1 -v -timeout 30m -run '^TestGuest$$' ./e2e

image-test: tools # the appliance's image, booted in QEMU from its FAT partition to readings at a collector
	$(GO) test -count=1 -v -timeout 15m -run '^TestImage' ./e2e

fuzz: # each fuzz target for a moment
	@grep -rlE '^func Fuzz' --include='*_test.go' . | xargs -n1 dirname | sort -u | while read -r dir; do \
		for target in $$($(GO) test -list '^Fuzz' "$$dir" | grep '^Fuzz'); do \
			$(GO) test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) "$$dir" || exit 1; \
		done; \
	done

test-kill: ## the promises under hundreds of kills and a link cut for a minute
	SLUICE_KILLS=$${SLUICE_KILLS:-400} SLUICE_CUT=60s $(GO) test -count=1 -v -timeout 90m -run 'Promise|Field' ./e2e

bench: build ## figures of this machine, as a table and as JSON lines
	@bin/sluice-lab bench

lab: tools build ## the experiments on lossy and changing links, into docs/results; takes hours
	@bin/sluice-lab run all

clean: ## remove what was built, the data of make run and the kernels of guests
	rm -rf bin var

.PHONY: help build cross cross-arm64 cross-armv7 cross-armv6 run demo test tools lint unit guest image-test fuzz test-kill bench lab clean

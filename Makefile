# Short names for what xtask does. The logic lives in xtask/src; scripts/setup gets what is missing.
BUILT  := $(or $(CARGO_TARGET_DIR),target)/debug/xtask
STAGED := target/fanpcap/lib/libpcap.so.0.8
PREFIX ?= /usr/local
XTASK  := cargo run --quiet -p xtask --

.PHONY: all demo test check install clean help

all:
	@scripts/setup build $(XTASK) stage

demo:
	@scripts/setup demo $(XTASK) demo

test:
	@scripts/setup test $(XTASK) test

check:
	@scripts/setup build $(XTASK) check

# Installs what `make` built, so that `sudo make install` needs no compiler.
install: $(STAGED) $(BUILT)
	@$(BUILT) install "$(PREFIX)"

$(STAGED) $(BUILT):
	@$(MAKE) --no-print-directory all

clean:
	rm -rf target

help:
	@echo 'make                   build; the library is then in target/fanpcap/lib'
	@echo 'make demo              four tcpdumps share one interface (needs root)'
	@echo 'make test              every test; as root also those on real packets'
	@echo 'make check             formatting, lints, dependencies'
	@echo 'make install PREFIX=   into PREFIX (default /usr/local); honours DESTDIR'
	@echo 'make clean             remove what was built'

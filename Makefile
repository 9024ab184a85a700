# Short names for what xtask does. The logic lives in xtask/src; scripts/setup gets what is missing,
# as root; FANPCAP_NO_INSTALL=1 forbids that.
BUILT  := $(or $(CARGO_TARGET_DIR),target)/command/xtask
STAGED := target/fanpcap/lib/libpcap.so.0.8 target/fanpcap/bin/fanpcap
PREFIX ?= /usr/local
XTASK  := cargo run --profile command -p xtask --
SUITES := cargo run --quiet -p fanpcap-suites --

.PHONY: build all dpdk deb-dpdk test-dpdk demo demo-cluster picture test test-long test-bare test-guest release soak ledger bench conformance \
	conformance-full bindings check install uninstall deb clean help

# The library and the command.
build:
	@scripts/setup build $(XTASK) stage

# The programs of bench and cluster, too.
all:
	@scripts/setup build $(XTASK) stage --all

# The plugin of pollers for devices of DPDK, built for this machine's DPDK. Nothing else needs DPDK.
dpdk:
	@scripts/setup dpdk $(XTASK) dpdk

demo:
	@scripts/setup demo $(XTASK) stage >/dev/null
	@scripts/setup demo cargo run --quiet -p fanpcap-demo

# A capture cluster on this machine, with an etcd of three members.
demo-cluster:
	@scripts/setup cluster $(XTASK) stage --all >/dev/null
	@scripts/setup cluster cargo run --quiet --profile command -p fanpcap-demo-cluster

# The README's moving picture: docs/pictures/run.svg.
picture:
	@scripts/setup demo $(XTASK) stage >/dev/null
	@scripts/setup demo cargo run --quiet -p fanpcap-demo -- picture

# A job in the background of a shell may ignore some signals. The tests send these signals to
# programs, so env(1) restores the default actions.
test:
	@env --default-signal=INT,QUIT,HUP scripts/setup test $(XTASK) test \
		$(if $(NAME),--name "$(NAME)",$(TIERS))

# The tests of pollers on devices of DPDK. Without DPDK, `make test` skips most of them.
test-dpdk:
	@env --default-signal=INT,QUIT,HUP scripts/setup test-dpdk $(XTASK) test --name dpdk

# The tests that take too long for `make test`.
test-long:
	@env --default-signal=INT,QUIT,HUP scripts/setup test $(XTASK) test --long

# Tests in clean roots of distributions, or in the roots that ROOTS names.
test-bare:
	@scripts/setup bare $(XTASK) bare $(ROOTS)

# The files of a release, in target/release-files, for all distributions or those that ROOTS names.
# SIGN is gpg's name of the key that signs them.
release:
	@scripts/setup release $(XTASK) stage >/dev/null
	@SIGN="$(SIGN)" scripts/setup release $(XTASK) release $(ROOTS)

# Tests on Debian's kernels in emulated machines: on all of them, or on those that KERNELS names.
test-guest:
	@scripts/setup guest $(XTASK) guest $(KERNELS)

# Everything at once for MINUTES minutes.
soak:
	@scripts/setup bench $(XTASK) stage >/dev/null
	@scripts/setup bench cargo run --release --quiet -p fanpcap-soak -- $(or $(MINUTES),30)

# The ledger of `fanpcap run` while its copies are killed, RUNS times for each mode.
ledger:
	@scripts/setup test $(XTASK) stage >/dev/null
	@FANPCAP_LEDGER_RUNS=$(or $(RUNS),10) scripts/setup test \
		cargo test --quiet -p fanpcap-cli --test run -- \
		--include-ignored --nocapture within_the_bound a_merged_capture

# The library is measured as users get it: built for release, and staged.
bench:
	@scripts/setup bench $(XTASK) stage >/dev/null
	@FANPCAP_LIB_DIR="$${FANPCAP_LIB_DIR:-$(CURDIR)/target/fanpcap/lib}" scripts/setup bench \
		cargo run --release --quiet -p fanpcap-bench -- --output target/bench $(NAME)

# Each behaviour of libpcap on the system's library and on ours, and the matrix of them.
conformance:
	@scripts/setup test $(XTASK) stage >/dev/null
	@scripts/setup test cargo test --quiet -p fanpcap-conformance -- --include-ignored --test-threads=4

# The tests of others, on the system's library and on ours; they come from package registries.
conformance-full: build
	@scripts/setup suites $(SUITES) libpcap tcpdump

bindings: build
	@scripts/setup suites $(SUITES) net-pcap pcapy-ng scapy gopacket rust-pcap pcap4j

check:
	@scripts/setup build $(XTASK) check

# Installs what `make` built, so that `sudo make install` needs no compiler.
install: $(STAGED) $(BUILT)
	@$(BUILT) install "$(PREFIX)"

# Takes back what `make install PREFIX=` did.
uninstall: $(BUILT)
	@$(BUILT) uninstall "$(PREFIX)"

$(STAGED) $(BUILT):
	@$(MAKE) --no-print-directory build

# The Debian package, in target/fanpcap.
deb:
	@scripts/setup deb $(XTASK) deb

# The Debian package of that plugin, in target/fanpcap-dpdk.
deb-dpdk:
	@scripts/setup deb-dpdk $(XTASK) deb-dpdk

clean:
	rm -rf target

help:
	@echo 'make                   build; library and command are then in target/fanpcap/lib and /bin'
	@echo 'make all               the programs of bench and cluster, too'
	@echo 'make demo              four tcpdumps share one interface (needs root)'
	@echo 'make demo-cluster      nodes of a capture cluster come, go and die (needs root)'
	@echo "make picture           records the README's moving picture (needs root)"
	@echo 'make test              every test; as root also those on real packets'
	@echo 'make test TIERS=       some tiers of tests'
	@echo 'make test NAME=        the tests whose names contain this'
	@echo 'make test-long         long tests, many generated inputs, all kernels (needs root)'
	@echo 'make test-bare ROOTS=  build, demo and tests in clean roots (needs root):'
	@echo '                       debian-12, debian-13, ubuntu-24.04'
	@echo 'make release ROOTS= SIGN= packages, source archive, checksums, apt repository (needs root)'
	@echo 'make test-guest KERNELS= some tests in emulated machines (needs root),'
	@echo '                       with kernels of Debian: 5.10, 6.1, 6.12'
	@echo 'make ledger RUNS=10    what run tells of killed copies, against the device (needs root)'
	@echo 'make soak MINUTES=30   everything at once: nothing lost, nothing grows (needs root)'
	@echo 'make bench NAME=       our library against the system, all rows or some (needs root)'
	@echo "make conformance       each behaviour of libpcap, on the system's and ours (needs root)"
	@echo "make conformance-full  libpcap's and tcpdump's own tests, on both (needs root)"
	@echo 'make bindings          the tests of bindings: Perl, Python, Go, Rust, Java (needs root)'
	@echo 'make check             formatting, lints, dependencies'
	@echo 'make install PREFIX=   into PREFIX (default /usr/local); honours DESTDIR'
	@echo 'make uninstall PREFIX= takes that back'
	@echo 'make deb               the Debian package, target/fanpcap/fanpcap_VERSION_ARCH.deb'
	@echo 'make dpdk              the plugin for devices of DPDK (installs libdpdk-dev)'
	@echo 'make test-dpdk         the tests on devices of DPDK (needs root)'
	@echo 'make deb-dpdk          its Debian package, target/fanpcap-dpdk/fanpcap-dpdk_VERSION_ARCH.deb'
	@echo 'make clean             remove what was built'

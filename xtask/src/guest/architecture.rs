//! The architectures of guests: how the emulator imitates their machines.

/// An architecture. Its emulator runs without KVM, so this machine needs no support for
/// virtualization.
#[derive(Debug)]
pub(crate) struct Architecture {
    /// Debian's name.
    pub(super) name: &'static str,
    pub(super) emulator: &'static str,
    /// The emulator's options for the machine and its CPUs.
    pub(super) machine: &'static str,
    /// Words of the kernel's command line: the console, and what the machine needs.
    pub(super) kernel_line: &'static str,
}

/// The guest has no PIT (8254), so its kernel calibrates its clock by the HPET. With a PIT, the
/// clock of a guest ran 37 times too fast on a busy machine: `pit_hpet_ptimer_calibrate_cpu()`
/// prefers the PIT to the HPET.
pub(crate) const AMD64: Architecture = Architecture {
    name: "amd64",
    emulator: "qemu-system-x86_64",
    machine: "-machine q35,pit=off -cpu max",
    kernel_line: "console=ttyS0 tsc=reliable no_timer_check",
};

/// Without `pauth-impdef`, the emulator spends most of its time on pointer authentication.
pub(crate) const ARM64: Architecture = Architecture {
    name: "arm64",
    emulator: "qemu-system-aarch64",
    machine: "-machine virt,gic-version=3 -cpu max,pauth-impdef=on",
    kernel_line: "console=ttyAMA0",
};

//! The programs' command lines, and the expected result of each run.

/// One run of a program.
#[derive(Debug)]
pub(super) struct Case {
    /// The program and its arguments.
    pub(super) line: &'static str,
    pub(super) stop: Stop,
    /// The program's exit code.
    pub(super) code: i32,
    /// The text that the program must print.
    pub(super) says: &'static str,
    /// The library's warning, which the program must print on the variant XDP instead of `says`;
    /// `None` if the library does not warn.
    pub(super) warns_on_xdp: Option<&'static str>,
    pub(super) wants: Wants,
}

/// The way in which the program ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    ByItself,
    /// The program ends after it has waited for a full minute.
    AfterAMinute,
    /// The program would run for ever. The test interrupts it after some seconds.
    Interrupted,
}

/// A further condition, in addition to exit code and text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wants {
    Nothing,
    /// The program prints `N packets seen, M packets counted`. The numbers must be equal and not 0.
    Packets,
    /// The expected number of valgrind's reports. The program itself causes these reports, and the
    /// library must add none.
    Complaints(usize),
    /// The program must write a capture file of this name with packets in it.
    File(&'static str),
}

impl Case {
    pub(super) fn program(&self) -> &'static str {
        self.line.split(' ').next().unwrap_or_default()
    }

    pub(super) fn arguments(&self) -> impl Iterator<Item = &'static str> {
        self.line.split(' ').skip(1)
    }

    const fn ends(line: &'static str, code: i32, says: &'static str) -> Self {
        Self {
            line,
            stop: Stop::ByItself,
            code,
            says,
            warns_on_xdp: None,
            wants: Wants::Nothing,
        }
    }

    /// A case that opens a device whose driver can't run an XDP program. On XDP, the library prints
    /// `warning` and reads packet sockets instead.
    const fn opens_without_driver(
        line: &'static str,
        says: &'static str,
        warning: &'static str,
    ) -> Self {
        Self {
            warns_on_xdp: Some(warning),
            ..Self::ends(line, 0, says)
        }
    }

    const fn complains(line: &'static str) -> Self {
        Self {
            wants: Wants::Complaints(3),
            ..Self::ends(line, COMPLAINED, "uninitialised byte(s)")
        }
    }

    const fn waits(line: &'static str, says: &'static str) -> Self {
        Self {
            stop: Stop::AfterAMinute,
            ..Self::ends(line, 0, says)
        }
    }

    /// A case in which the interrupt kills the program.
    const fn captures(line: &'static str, says: &'static str) -> Self {
        Self {
            stop: Stop::Interrupted,
            wants: Wants::Packets,
            ..Self::ends(line, INTERRUPTED, says)
        }
    }

    /// A case in which the program breaks its loop at the interrupt, and exits.
    const fn breaks(line: &'static str, says: &'static str, wants: Wants) -> Self {
        Self {
            stop: Stop::Interrupted,
            wants,
            ..Self::ends(line, 0, says)
        }
    }
}

/// valgrind's exit status when it has reported errors.
pub(super) const COMPLAINED: i32 = 99;
/// The exit status after an interrupt: 128 and the number of SIGINT.
const INTERRUPTED: i32 = 130;

/// The cases. Their device is [`crate::wire::DEVICE`].
pub(super) const CASES: &[Case] = &[
    Case::ends("activatetest", 0, ""),
    Case::ends("reactivatetest", 0, ""),
    Case::ends(
        "can_set_rfmon_test wire0",
        0,
        "wire0: Monitor mode cannot be set",
    ),
    Case::ends(
        "can_set_rfmon_test nosuch0",
        0,
        "nosuch0: Monitor mode cannot be set",
    ),
    Case::ends("findalldevstest", 0, "wire0\n\tFlags: UP, RUNNING"),
    Case::ends("findalldevstest-perf", 0, "Total CPU secs"),
    Case::ends("filtertest EN10MB tcp port 80", 0, "(000) ldh      [12]"),
    Case::ends("filtertest EN10MB no such word", 1, "syntax error"),
    Case::ends("opentest -i wire0", 0, "wire0 opened successfully"),
    Case::opens_without_driver(
        "opentest -i any",
        "any opened successfully",
        "packet sockets are read, not the engine xdp: the device any has no driver",
    ),
    Case::ends("opentest -i nosuch0", 1, "nosuch0: No such device exists"),
    Case::ends("opentest -a -i wire0", 0, "wire0 opened successfully"),
    Case::ends(
        "opentest -a -p -s 96 -i wire0",
        0,
        "wire0 opened successfully",
    ),
    Case::opens_without_driver(
        "opentest -B 4096 -i lo",
        "lo opened successfully",
        "packet sockets are read, not the engine xdp: a loopback device has no driver",
    ),
    Case::ends(
        "opentest -a -i nosuch0",
        1,
        "nosuch0: No such device exists",
    ),
    Case::ends(
        "opentest -I -i wire0",
        1,
        "wire0: That device doesn't support monitor mode",
    ),
    Case::ends(
        "nonblocktest -i wire0",
        0,
        "pcap_setnonblock failed as expected",
    ),
    Case::complains("valgrindtest -i wire0 udp"),
    Case::complains("valgrindtest -a -i wire0 tcp"),
    Case::waits(
        "threadsignaltest -n -i wire0 ip proto 253",
        "Loop got broken",
    ),
    Case::waits("threadsignaltest -i wire0 ip proto 253", "Loop got broken"),
    Case::waits("threadsignaltest -n -i wire0", "Loop got broken"),
    Case::captures("capturetest -i wire0", "Listening on wire0"),
    Case::captures("capturetest -i any", "Listening on any"),
    Case::captures("capturetest -m -i wire0", "Listening on wire0"),
    Case::captures("capturetest -t 100 -i wire0 udp", "Listening on wire0"),
    Case::captures("capturetest -n -t 10 -i wire0 ip6", "Listening on wire0"),
    Case::breaks("capturetest -s -b -i wire0", BROKEN, Wants::Packets),
    Case::breaks("capturetest -s -b -r -i wire0", BROKEN, Wants::Packets),
    Case::breaks("capturetest -s -b -m -i wire0", BROKEN, Wants::Packets),
    Case::breaks(
        "capturetest -s -b -r -i wire0 ip proto 253",
        BROKEN,
        Wants::Nothing,
    ),
    Case::captures("selpolltest -i wire0", "using pcap_dispatch()"),
    Case::captures("selpolltest -s -q -i wire0", "using select()"),
    Case::captures("selpolltest -s -t -q -i wire0", "using select()"),
    Case::captures("selpolltest -s -n -q -i wire0 tcp", "using select()"),
    Case::captures("selpolltest -p -q -i wire0", "using poll()"),
    Case::captures("selpolltest -p -t -q -i wire0", "using poll()"),
    Case::captures("selpolltest -p -n -q -i wire0 udp", "using poll()"),
    Case::ends("writecaptest -D", 0, "wire0"),
    Case::ends("writecaptest -L -i wire0", 0, "EN10MB"),
    Case::breaks(
        "writecaptest -i wire0 -w whole.pcap",
        "",
        Wants::File("whole.pcap"),
    ),
    Case::breaks(
        "writecaptest -i wire0 -s 64 -w cut.pcap tcp",
        "",
        Wants::File("cut.pcap"),
    ),
];

const BROKEN: &str = "Broken out of loop from SIGINT handler";

//! The library's calls on a handle of an engine, by the C program `c/on_xdp.c`: how it runs, and
//! the cases that all engines have in common.

use crate::Wire;
use anyhow::{Context, Result, ensure};
use fanpcap_testkit::Program;

/// A case: the argument of the C program, and its output.
pub type Case = (&'static str, &'static str);

/// Reads wait as the handle's settings say.
pub const WAITING: &[Case] = &[
    ("polled", "20 packets, late no, spins no"),
    ("nonblock", "0 then 20 packets"),
    ("waits", "1, 0 before, late no"),
    ("immediate", "50 packets, late no"),
    ("broken", "-2 after 20 packets"),
];

/// Frames are sent with their own protocol.
pub const SENDING: &[Case] = &[("inject", "2 of 2 sent, then send: Message too long")];

/// What a filter rejects of sent packets is not counted, also without privileges.
pub const OUTGOING: Case = ("outgoing", "20, 20 packets, 40 received, 0 dropped");

/// Packets have their time and length.
pub const STAMPED: &[Case] = &[
    (
        "stamped",
        "5000 packets, 0 late, 0 early, 0 backwards, 0 wrong",
    ),
    ("cut", "5000 packets, 0 late, 0 early, 0 backwards, 0 wrong"),
];

/// Directions are told apart.
pub const DIRECTED: Case = ("directed", "21, 20, 1 packets");

/// A daemon reads on when its parent has ended.
pub const FORKED: &[Case] = &[("forked", "5000 packets")];

/// What the C program prints on an engine.
///
/// # Errors
/// The program fails.
pub fn said(wire: &Wire, driver: &str, what: &str) -> Result<String> {
    let program = Program::new(wire.compile("on_xdp")?, "")?;
    let ended = program.arg(what).set("PCAP_DRIVER", driver);
    let ended = ended.run(&wire.scratch)?;
    ensure!(ended.status.success(), "{}\n{}", ended.status, ended.said);
    Ok(ended.said.trim_end().to_owned())
}

/// Checks the output of a case on an engine.
///
/// # Errors
/// The output is another one, or the program fails.
pub fn ensure_said(wire: &Wire, driver: &str, (what, expected): Case) -> Result<()> {
    let said = said(wire, driver, what).with_context(|| what.to_owned())?;
    ensure!(said == expected, "{what}: {said}");
    Ok(())
}

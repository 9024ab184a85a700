//! Checks the sections "Joining a group" and "Loading" of docs/errors.md. The kernel and the
//! library must produce each message that these sections list.

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Result, ensure};
use fanpcap_netns::{DEVICE, FAR_DEVICE, Wire, on_wire};
use fanpcap_testkit::{Program, errors_page, member, veth};

/// The cases of c/refused.c about groups, with the environment variables of each case.
const JOINING: [Case; 29] = [
    ("not-a-packet-socket", &[]),
    ("not-a-live-handle", &[]),
    ("group-out-of-range", &[]),
    ("call-with-unknown-mode", &[]),
    ("already-in-a-group", &[]),
    ("already-in-by-another-mode", &[]),
    ("group-has-other-mode", &[]),
    ("group-has-other-options", &[]),
    ("group-has-other-program", &[]),
    ("group-needs-cap-net-raw", &[]),
    ("program-needs-cap-bpf", &[]),
    ("program-without-room", &[]),
    ("program-needs-ethernet", &[]),
    ("program-on-all-devices", &[]),
    ("group-unreachable", &[]),
    ("program-of-others", &[]),
    ("program-of-members-without-page", &[]),
    ("program-of-members-unseen", &[]),
    ("program-of-members-of-another-user", &[]),
    ("group-on-other-device", &[]),
    ("group-has-other-protocol", &[]),
    ("one-group-for-several-devices", &[]),
    ("group-on-one-device", &[]),
    ("group-on-other-devices", &[]),
    ("several-devices-not-alike", &[]),
    ("group-is-full", &[]),
    (
        "group-set-by-a-variable",
        &[("PCAP_GROUP", "7"), ("PCAP_FANOUT", "rnd")],
    ),
    ("stats-without-group", &[]),
    ("stats-without-size", &[]),
];

/// The case of an application for which our library can't find the system's library.
const LOADING: [Case; 1] = [(
    "no-system-library",
    &[("FANPCAP_LIBPCAP", "/nonexistent/libpcap.so.0.8")],
)];

type Case = (&'static str, &'static [(&'static str, &'static str)]);

/// One test for both sections, because FANPCAP_BLESS rewrites the whole page.
#[test]
#[ignore = "needs root: run by make test"]
fn the_page_lists_every_refusal_as_it_is() -> Result<()> {
    on_wire(1, |wire| {
        if !fs::exists("/proc/sys/net/core/optmem_max")? {
            println!("SKIP: net.core.optmem_max is the machine's before Linux 6.8");
            return Ok(());
        }
        if !fs::exists("/dev/net/tun")? {
            println!("SKIP: this machine has no /dev/net/tun");
            return Ok(());
        }
        veth::ip("tuntap add dev notether mode tun")?;
        veth::ip("link set notether up")?;
        errors_page::check("Joining a group", &produced(wire, &JOINING)?)?;
        errors_page::check("Loading", &produced(wire, &LOADING)?)
    })
}

/// The message that each case produces, by the case's name.
fn produced(wire: &Wire, cases: &[Case]) -> Result<BTreeMap<String, String>> {
    let program = wire.compile("refused")?;
    let said = |&(case, variables): &Case| {
        // The kernel may close the sockets of the previous case's members a little later than the
        // case's program ends.
        member::wait_for_members(7, 0)?;
        let mut refused = Program::new(&program, "")?.args([case, DEVICE, FAR_DEVICE]);
        for (name, value) in variables {
            refused = refused.set(name, value);
        }
        let ended = refused.run(&wire.scratch)?;
        ensure!(ended.status.success(), "{case}: {}", ended.said);
        Ok((case.to_owned(), ended.said.trim_end().to_owned()))
    };
    cases.iter().map(said).collect()
}

//! docs/errors.md, section "Joining a group", is exact: the kernel and the library say so here.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use fanpcap_netns::{DEVICE, FAR_DEVICE, on_wire};
use fanpcap_testkit::{Program, errors_page};

/// The cases of c/refused.c.
const CASES: [&str; 12] = [
    "not-a-packet-socket",
    "not-a-live-handle",
    "group-out-of-range",
    "call-with-unknown-mode",
    "already-in-a-group",
    "group-has-other-mode",
    "group-has-other-options",
    "group-on-other-device",
    "group-has-other-protocol",
    "group-is-full",
    "stats-without-group",
    "stats-without-size",
];

#[test]
#[ignore = "needs root: run by make test"]
fn the_page_lists_every_refusal_as_it_is() -> Result<()> {
    on_wire(1, |wire| {
        let program = wire.compile("refused")?;
        let mut produced = BTreeMap::new();
        for case in CASES {
            let refused = Program::new(&program, "")?.args([case, DEVICE, FAR_DEVICE]);
            let ended = refused.run(&wire.scratch)?;
            ensure!(ended.status.success(), "{case}: {}", ended.said);
            produced.insert(case.to_owned(), ended.said.trim_end().to_owned());
        }
        errors_page::check("Joining a group", &produced)
    })
}

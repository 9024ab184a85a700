//! `--send`: the poller sends frames of members.

use anyhow::{Result, ensure};
use fanpcap_poll::message::Hello;
use fanpcap_poll::place;
use fanpcap_polled::{PolledMember, enter};
use fanpcap_testkit::await_for::{LIMIT, await_for};
use fanpcap_testkit::veth::{Veth, counters};
use std::io::ErrorKind;

use crate::running::{Poller, hello, within};
use crate::{FAR, NEAR};

const FRAME: [u8; 60] = [2; 60];

fn member(engine: &str) -> Result<PolledMember> {
    let found = place::open(engine, FAR)?;
    let hello = Hello {
        group: None,
        ..hello()
    };
    Ok(enter(&found.directory, &found.name, &hello, LIMIT)?)
}

fn sends(engine: &str) -> Result<()> {
    within(|| {
        Veth::new(NEAR, FAR, 1)?;
        let refuses = Poller::start(&format!("{engine}:{FAR}"), 1)?;
        let error = member(engine)?.send(&FRAME).map_err(|it| it.kind());
        ensure!(error == Err(ErrorKind::Unsupported), "{error:?}");
        refuses.end()?;
        let poller = Poller::start(&format!("{engine}:{FAR} --send"), 1)?;
        let member = member(engine)?;
        let before = counters(NEAR)?.received;
        for _ in 0..3 {
            member.send(&FRAME)?;
        }
        // The kernel refuses a frame that is longer than the device's MTU.
        member.send(&[2; 9000])?;
        await_for("the frames", LIMIT, || {
            Ok((counters(NEAR)?.received - before == 3).then_some(()))
        })?;
        let summary = poller.end()?.join("\n");
        let expected = "3 frames of members sent, 1 frames of members not sent";
        ensure!(summary.contains(expected), "{summary}");
        Ok(())
    })
}

#[test]
#[ignore = "needs root: packet sockets in a namespace"]
fn frames_of_members_are_sent_only_if_the_administrator_says_so() {
    sends("packet").unwrap();
}

#[test]
#[ignore = "needs root: AF_XDP sockets in a namespace"]
fn frames_of_members_are_sent_beside_af_xdp() {
    sends("afxdp").unwrap();
}

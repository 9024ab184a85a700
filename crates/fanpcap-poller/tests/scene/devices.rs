//! A generator at one end of a pair of devices, in the network namespace of a test.
#![allow(clippy::unwrap_used, reason = "a test may panic")]
#![allow(unreachable_pub, reason = "a module of tests")]

use super::clients::Client;
use anyhow::{Context, Result, ensure};
use fanpcap_gen::{Choice, Description, Lengths, Pace, Plan, Pool, Sender, Until};
use fanpcap_linux::interface;
use fanpcap_testkit::await_for::await_so;
use fanpcap_testkit::veth::Veth;
use std::collections::HashSet;
use std::sync::atomic::AtomicBool;

/// The devices `va`, at which the generator sends, and `vb`.
pub struct Devices {
    /// The index of `vb`.
    pub ifindex: u32,
    frames: Pool,
    sender: Sender,
}

impl Devices {
    /// Adds the devices. All frames of the generator differ, and are of 500 flows.
    pub fn new() -> Result<Self> {
        Veth::new("va", "vb", 1)?;
        let description = Description {
            flows: 500,
            lengths: Lengths::Imix,
            answers: true,
            stamp: true,
            ..Description::default()
        };
        let frames = description.pool()?;
        Ok(Self {
            ifindex: interface::index("vb").context("no device vb")?,
            sender: Sender::open("va", frames.clone(), Choice::Auto)?,
            frames,
        })
    }

    pub fn send(&mut self, count: u64, pace: &str) -> Result<()> {
        let plan = Plan {
            until: Until::Frames(count),
            pace: Pace::Even(pace.parse()?),
        };
        let sent = self.sender.send(&plan, &AtomicBool::new(false))?;
        ensure!(sent.frames == count, "{sent:?}");
        Ok(())
    }

    /// Checks that these are the generator's first frames, each once.
    pub fn check<'f>(&self, count: u64, got: impl Iterator<Item = &'f [u8]>) {
        let mut all = HashSet::new();
        for frame in got {
            assert!(all.insert(frame), "a frame came twice");
        }
        let expected = (0..count).map(|number| self.frames.frame(number));
        let mut missing = expected.filter(|frame| !all.contains(&frame[..]));
        assert_eq!(missing.next(), None);
        assert_eq!(all.len() as u64, count);
    }

    /// Reads until the members have got so many frames, and checks them.
    pub fn await_all(&self, count: u64, members: &mut [Client]) {
        await_so("all packets", || {
            members.iter_mut().for_each(Client::read);
            members.iter().map(|it| it.got.len() as u64).sum::<u64>() >= count
        });
        self.check(
            count,
            members.iter().flat_map(|it| &it.got).map(|it| &it[..]),
        );
    }
}

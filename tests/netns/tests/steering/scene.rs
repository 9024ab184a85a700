//! A scene is a group with a steering program. It sends frames past the group's members and
//! collects each member's packets.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Debug;
use std::fs;
use std::path::PathBuf;
use std::thread;

use anyhow::{Context, Result, ensure};
use fanpcap_netns::{DEVICE, FAR_DEVICE, Wire, on_wire};
use fanpcap_testkit::{Injector, Program, capture, cpus, pin};

use crate::frame::Frame;

/// A wire, and the application (`c/shared.c`) whose handles are the members.
pub(crate) struct Scene<'a> {
    pub(crate) wire: &'a Wire,
    shared: PathBuf,
}

/// The member that got each frame.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// For each frame, in the order of sending, the member that got the frame.
    pub(crate) owners: Vec<Option<usize>>,
    /// The number of members in the group.
    pub(crate) members: usize,
    /// The group's counters at the end, by name.
    pub(crate) told: BTreeMap<String, i64>,
}

/// Runs a test with a scene whose devices have `queues` queues.
pub(crate) fn on_scene<T: Send>(
    queues: usize,
    test: impl FnOnce(&Scene<'_>) -> Result<T> + Send,
) -> Result<T> {
    on_wire(queues, |wire| {
        let shared = wire.compile("shared")?;
        test(&Scene { wire, shared })
    })
}

impl Scene<'_> {
    /// Starts a group under a mode or program, sends the frames past it, and returns which member
    /// got each frame.
    pub(crate) fn share(&self, fanout: &str, members: usize, frames: &[Frame]) -> Result<Outcome> {
        self.share_sent_by(fanout, members, frames, || {
            let frames = frames.iter();
            self.wire
                .send_bytes(frames.map(|frame| (frame.direction, &frame.bytes[..])))
        })
    }

    /// Like [`Scene::share`], but all frames arrive on one CPU, on which the kernel then runs the
    /// program.
    pub(crate) fn share_on_one_cpu(
        &self,
        fanout: &str,
        members: usize,
        frames: &[Frame],
    ) -> Result<Outcome> {
        let body = || -> Result<()> {
            pin(cpus()?[0])?;
            let far = Injector::open(FAR_DEVICE)?;
            Ok(frames.iter().try_for_each(|frame| far.send(&frame.bytes))?)
        };
        self.share_sent_by(fanout, members, frames, || {
            thread::scope(|scope| scope.spawn(body).join()).expect("the sender does not panic")
        })
    }

    /// Like [`Scene::share`], but `send` sends the frames.
    pub(crate) fn share_sent_by(
        &self,
        fanout: &str,
        members: usize,
        frames: &[Frame],
        send: impl FnOnce() -> Result<()>,
    ) -> Result<Outcome> {
        let scratch = &self.wire.scratch;
        let files = scratch.new_file("members");
        fs::create_dir(&files)?;
        let program = Program::new(&self.shared, "ready")?
            .args([
                DEVICE,
                &members.to_string(),
                fanout,
                &frames.len().to_string(),
            ])
            .arg(&files);
        let program = program.start(scratch).with_context(|| fanout.to_owned())?;
        send()?;
        let ended = program.wait()?;
        ensure!(ended.status.success(), "{fanout}:\n{}", ended.said);
        let got = (0..members).map(|member| capture::frames(&files.join(format!("{member}.pcap"))));
        let got = got.collect::<Result<Vec<_>>>()?;
        Outcome::of(frames, &got, &ended.said).with_context(|| format!("{fanout}:\n{}", ended.said))
    }
}

impl Outcome {
    fn of(frames: &[Frame], got: &[Vec<Vec<u8>>], said: &str) -> Result<Self> {
        let told = told(said);
        let number = |name: &str| -> Result<usize> {
            let number = told
                .get(name)
                .and_then(|&number| usize::try_from(number).ok());
            number.with_context(|| format!("no {name}"))
        };
        ensure!(
            number("witness")? == frames.len(),
            "the device passed other frames too"
        );
        ensure!(number("dropped")? == 0, "a member's ring was full");
        let captured: usize = got.iter().map(Vec::len).sum();
        ensure!(
            number("received")? == captured,
            "not all packets were read from the rings"
        );

        let mut places = HashMap::new();
        for (place, frame) in frames.iter().enumerate() {
            let twin = places.insert(&frame.bytes[..], place);
            ensure!(twin.is_none(), "frames {twin:?} and {place} are equal");
        }
        let mut owners = vec![None; frames.len()];
        for (member, packets) in got.iter().enumerate() {
            for packet in packets {
                let place = places
                    .get(&packet[..])
                    .context("a packet that was never sent")?;
                let other = owners[*place].replace(member);
                ensure!(
                    other.is_none(),
                    "frame {place} reached both members {other:?} and {member}"
                );
            }
        }
        let members = got.len();
        Ok(Self {
            owners,
            members,
            told,
        })
    }

    /// Packets of each member.
    pub(crate) fn shares(&self) -> Vec<usize> {
        let count = |member| {
            self.owners
                .iter()
                .filter(|owner| **owner == Some(member))
                .count()
        };
        (0..self.members).map(count).collect()
    }

    /// Checks that every frame reached a member.
    pub(crate) fn ensure_all_came(&self) -> Result<()> {
        let lost = self.owners.iter().position(Option::is_none);
        ensure!(lost.is_none(), "frame {lost:?} reached no member");
        Ok(())
    }

    /// Checks three things: frames of one key reached one member, each member got some frames, and
    /// frames without a key reached no member.
    pub(crate) fn ensure_steered_by<K: Ord + Debug>(&self, keys: &[Option<K>]) -> Result<()> {
        ensure!(
            keys.len() == self.owners.len(),
            "not one key for each frame"
        );
        let mut homes = BTreeMap::new();
        for (place, (key, owner)) in keys.iter().zip(&self.owners).enumerate() {
            let (Some(key), Some(owner)) = (key, owner) else {
                ensure!(
                    key.is_none() && owner.is_none(),
                    "frame {place} of {key:?} reached member {owner:?}"
                );
                continue;
            };
            let home = *homes.entry(key).or_insert(*owner);
            ensure!(
                home == *owner,
                "frame {place} of {key:?} reached member {owner}, not {home}"
            );
        }
        ensure!(
            !self.shares().contains(&0),
            "a member got no frame: {:?}",
            self.shares()
        );
        Ok(())
    }
}

/// The sums of the `name=value` words of all lines, by name.
fn told(said: &str) -> BTreeMap<String, i64> {
    let mut told = BTreeMap::new();
    let words = said.lines().flat_map(|line| line.split(' '));
    for (name, value) in words.filter_map(|word| word.split_once('=')) {
        *told.entry(name.to_owned()).or_insert(0) += value.parse().unwrap_or(0);
    }
    told
}

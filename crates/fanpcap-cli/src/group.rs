//! `fanpcap group`: shows the shares of a group's members, and changes them.

use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail, ensure};
use clap::Args;
use fanpcap_config::report::harmless_text;
use fanpcap_group::guard;
use fanpcap_group::view::GroupTable;
use fanpcap_group::weight::{self, Drained};
use fanpcap_linux::process::effective_user;
use fanpcap_linux::wait::clock;
use fanpcap_snapshot::{Device, OfPoller, Snapshot, Socket, Source, shown_name};
use fanpcap_terminal::{group_number, seconds, streams};

use shown::{Shown, Slot};

mod shown;
mod text;
mod member;
mod polled;
mod list;

/// Lists groups, shows the shares of members, and changes them
///
/// Without a group's number, the command lists the groups of the device, or of all devices. With
/// the number, it shows the group's members, their shares, the members that are gone, and the last
/// change.
///
/// A group with a steering program, such as mode 'flow', has a table: each packet belongs to a
/// bucket, each bucket to a slot, and each slot to a member. When a member joins or leaves, only
/// the buckets that it gets or had move. The kernel's own modes have no table: for groups in these
/// modes, only the members are known.
#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// The device; by default, all devices that have groups
    #[arg(value_name = "DEV")]
    device: Option<String>,
    /// The group's number; by default, all groups of the device
    #[arg(value_name = "GROUP", value_parser = number)]
    group: Option<u16>,
    /// The device, written as for tcpdump
    #[arg(short = 'i', long, alias = "device", value_name = "DEV")]
    interface: Option<String>,
    /// Print a JSON object for each group, one a line (docs/group-json.md)
    #[arg(long)]
    json: bool,
    /// Give the buckets of a member to other members, and wait until the drained member has read
    /// its ring. After that, the member can be stopped without moving a bucket. MEMBER is a pid,
    /// 'slot:N', a program or the name of a member
    #[arg(long, value_name = "MEMBER", conflicts_with = "json")]
    drain: Option<String>,
    /// With --drain: give the drained member buckets again, by weight 1
    #[arg(long, requires = "drain")]
    undo: bool,
    /// With --drain: how many seconds to wait until the ring is read
    #[arg(long, value_name = "SECONDS", default_value = "5", requires = "drain", conflicts_with = "undo", value_parser = |text: &str| seconds(text, &(0.0..=3600.0)))]
    wait: Duration,
    /// Set the weight of a member: the member gets N times the share of a member with weight 1
    #[arg(long, alias = "weight", value_name = "MEMBER=N", conflicts_with_all = ["json", "drain"], value_parser = member::weighed)]
    weigh: Option<(String, u16)>,
}

/// Parses the number of a group. If the user writes it before the device, says that it comes
/// second.
fn number(text: &str) -> Result<u16, String> {
    let is_name = text.starts_with(|first: char| first.is_ascii_alphabetic());
    let order = if is_name {
        ", and follows its device"
    } else {
        ""
    };
    group_number(text).map_err(|why| format!("{why}{order}"))
}

/// Runs `fanpcap group`.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let (device, number) = arguments.asked()?;
    let source = Source::new(device.as_deref());
    let snapshot = source
        .map_err(|error| without_device(error, device.as_deref()))?
        .take()?;
    let device = device.map(|it| shown_name(&it).to_owned());
    let asked = device.clone();
    let (Some(device), Some(number)) = (device, number) else {
        ensure!(
            arguments.drain.is_none() && arguments.weigh.is_none(),
            "which group? write 'fanpcap group DEV GROUP' before the option; 'fanpcap group' lists the groups"
        );
        return list::run(&snapshot, asked.as_deref(), arguments.json);
    };
    ensure_there(&snapshot, &device, number)?;
    let ifindex = with_group(&snapshot, &device, number)?;
    let group = Group::of(&snapshot, ifindex, number)?;
    if let Some(which) = &arguments.drain {
        return match arguments.undo {
            true => group.undo(which),
            false => group.drain(which, arguments.wait),
        };
    }
    if let Some((which, weight)) = &arguments.weigh {
        return group.weigh(which, *weight);
    }
    streams::print_as(arguments.json, &group.shown, || text::page(&group.shown))?;
    Ok(ExitCode::SUCCESS)
}

impl Arguments {
    /// The device and the group's number. With -i the first word is the number.
    fn asked(&self) -> Result<(Option<String>, Option<u16>)> {
        match (&self.interface, &self.device, self.group) {
            (None, device, group) => Ok((device.clone(), group)),
            (interface, Some(word), None) => {
                let number = group_number(word).map_err(|why| anyhow!("'{word}': {why}"))?;
                Ok((interface.clone(), Some(number)))
            }
            (interface, None, None) => Ok((interface.clone(), None)),
            (Some(interface), word, Some(_)) => {
                let word = word.as_deref().unwrap_or_default();
                bail!("both '{interface}' and '{word}' are devices: name one")
            }
        }
    }
}

/// The error about a device that does not exist, with advice if its name has a group's number.
fn without_device(error: anyhow::Error, device: Option<&str>) -> anyhow::Error {
    let (device, group) = match device.and_then(|it| it.split_once(['@', ':']).or(Some(("", it)))) {
        Some((device, group)) if group_number(group).is_ok() => (device, group),
        Some((group, device)) if group_number(group).is_ok() => (device, group),
        _ => return error,
    };
    let device = if device.is_empty() { "DEV" } else { device };
    anyhow!("{error}; a group's number follows its device: 'fanpcap group {device} {group}'")
}

/// The index of the device of this name that has the group. If only pollers of the device have it,
/// of the only such poller.
///
/// # Errors
/// Several pollers of the device have such a group.
fn with_group(snapshot: &Snapshot, device: &str, number: u16) -> Result<u32> {
    let is_of = |socket: &&Socket| socket.of_group().is_some_and(|it| it.number == number);
    let has = |it: &&Device| {
        let mut sockets = snapshot.sockets.iter().filter(is_of);
        sockets.any(|socket| socket.ifindex == it.ifindex)
    };
    let with: Vec<&Device> = snapshot.devices.iter().filter(has).collect();
    let own = with.iter().find(|it| it.name == device);
    match (own, with.as_slice()) {
        (Some(one), _) | (None, [one]) => Ok(one.ifindex),
        (None, several) => {
            let names: Vec<&str> = several.iter().map(|it| &*it.name).collect();
            bail!(
                "which group {number}? name the poller: {}",
                names.join(", ")
            )
        }
    }
}

/// A group that has members or a founder.
struct Group {
    ifindex: u32,
    shown: Shown,
    /// The poller of the members, if they have one.
    poller: Option<OfPoller>,
}

impl Group {
    /// The group of this number on the device with this index.
    ///
    /// # Errors
    /// The group's members do not show its table.
    fn of(snapshot: &Snapshot, ifindex: u32, group: u16) -> Result<Self> {
        let poller = shown::device(snapshot, ifindex).and_then(|it| it.poller.clone());
        if poller.is_some() {
            let view = snapshot.tables.get(&(ifindex, group));
            let shown = Shown::of(snapshot, (ifindex, group), view, clock::monotonic_ns());
            return Ok(Self {
                ifindex,
                shown,
                poller,
            });
        }
        let table = GroupTable::find(ifindex, group, ANSWERS);
        let table = table.map_err(|reasons| {
            let device = shown::device(snapshot, ifindex).map_or("its device", |it| &it.name);
            let is_root = effective_user() == 0;
            let advice = if is_root {
                ""
            } else {
                "; run this command as root"
            };
            anyhow!("group {group} on {device} does not show its table: {reasons}{advice}")
        })?;
        let view = table.as_ref().and_then(GroupTable::look);
        let now_ns = clock::monotonic_ns();
        let mut shown = Shown::of(snapshot, (ifindex, group), view.as_ref(), now_ns);
        if let Some(holder) = guard::holder(ifindex, group) {
            shown.note_holder(&holder);
        }
        Ok(Self {
            ifindex,
            shown,
            poller,
        })
    }

    fn member(&self, which: &str) -> Result<&Slot> {
        let Shown { group, mode, .. } = &self.shown;
        ensure!(
            self.shown.is_steered,
            "group {group} has mode {mode} of the kernel, in which members have no shares that could be \
             changed; members that start a group with 'PCAP_FANOUT=flow' have shares"
        );
        member::find(&self.shown.slots, which)
    }

    fn drain(&self, which: &str, limit: Duration) -> Result<ExitCode> {
        let member = self.member(which)?;
        let name = text::name(member);
        let await_empty = self.drained(member)?;
        let moved = member.buckets.unwrap_or(0);
        say(&format!(
            "{name}: its {moved} buckets were given to other members"
        ))?;
        let left = await_empty(limit);
        let (text, status) = match left {
            Some(0) => (
                "its ring is read, and it gets no more packets".to_owned(),
                ExitCode::SUCCESS,
            ),
            Some(left) => (
                format!(
                    "{left} packets are still in its ring after {:.1} seconds; when it ends, other members read these packets",
                    limit.as_secs_f64()
                ),
                ExitCode::FAILURE,
            ),
            None => (
                "it gets no more packets; whether its ring is read is unknown".to_owned(),
                ExitCode::FAILURE,
            ),
        };
        say(&text)?;
        Ok(status)
    }

    /// Gives a member's buckets to other members. Returns a function that waits until the member
    /// has read its ring, and returns what is left.
    fn drained(&self, member: &Slot) -> Result<Box<dyn Fn(Duration) -> Option<u64>>> {
        let name = text::name(member);
        if let Some(at) = self.poller.clone() {
            let member = member.socket;
            polled::weigh(&at, member, 0).map_err(|error| refused("drained", &name, error))?;
            return Ok(Box::new(move |limit| {
                polled::await_empty(&at, member, limit)
            }));
        }
        let drained = weight::drain(self.ifindex, self.shown.group, member.id());
        let drained = drained.map_err(|error| refused("drained", &name, error.into()))?;
        Ok(Box::new(move |limit| await_empty(&drained, limit)))
    }

    fn undo(&self, which: &str) -> Result<ExitCode> {
        let member = self.member(which)?;
        ensure!(
            member.weight == Some(0),
            "{} is not drained: its weight is {}",
            text::name(member),
            member.weight.unwrap_or_default()
        );
        self.weigh(which, 1)
    }

    fn weigh(&self, which: &str, weight: u16) -> Result<ExitCode> {
        let member = self.member(which)?;
        let name = text::name(member);
        let weighed = match &self.poller {
            Some(at) => polled::weigh(at, member.socket, weight),
            None => weight::weigh(self.ifindex, self.shown.group, member.id(), weight)
                .map_err(anyhow::Error::from),
        };
        weighed.map_err(|error| refused("weighed", &name, error))?;
        say(&format!("{name}: weight {weight}"))?;
        Ok(ExitCode::SUCCESS)
    }
}

/// How long members may take to answer a request for the table. A busy member checks for requests
/// ten times a second.
const ANSWERS: Duration = Duration::from_millis(700);

/// Interval of checks whether a ring has been read.
const LOOK: Duration = Duration::from_millis(5);

/// Waits until a drained member has read its ring, but at most for `limit`. Returns the number of
/// packets that are left in the ring; `None` if unknown.
fn await_empty(drained: &Drained, limit: Duration) -> Option<u64> {
    let end = Instant::now() + limit;
    loop {
        let left = drained.unread();
        if left.is_none_or(|left| left == 0) || Instant::now() > end {
            return left;
        }
        thread::sleep(LOOK);
    }
}

fn refused(done: &str, name: &str, error: anyhow::Error) -> anyhow::Error {
    error.context(format!("{name} can't be {done}"))
}

fn say(text: &str) -> Result<()> {
    streams::print(&format!("{}\n", harmless_text(text)))?;
    Ok(())
}

/// Checks that the group has a member or a founder on the device.
fn ensure_there(snapshot: &Snapshot, device: &str, group: u16) -> Result<()> {
    let groups = snapshot.sockets.iter().filter_map(Socket::of_group);
    let mut groups: Vec<u16> = groups.map(|it| it.number).collect();
    groups.sort_unstable();
    groups.dedup();
    if groups.contains(&group) {
        return Ok(());
    }
    let others = match groups.as_slice() {
        [] => "it has none".to_owned(),
        groups => {
            let numbers: Vec<String> = groups.iter().map(u16::to_string).collect();
            format!("it has {}", numbers.join(", "))
        }
    };
    bail!(
        "no group {group} on {device} in this network namespace: {others}; 'fanpcap group' lists all \
         groups here, and 'ip netns exec NAME fanpcap group' those of another namespace"
    )
}

//! The part of the demo in which a member crashes and another joins: no flow of the other members
//! moves.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use fanpcap_testkit::await_for::{LIMIT, await_for};
use fanpcap_testkit::calls::Calls;
use fanpcap_testkit::hosts::DEVICE;
use fanpcap_testkit::{Capture, FlowKey, Member, Program};

use super::{GROUP, Scene, library_of};

/// Number of flows. They last for the whole part of the demo.
const FLOWS: usize = 256;

/// Number of members, including the member that joins later.
const MEMBERS: usize = 5;

/// The member that has each flow. Members are numbered in the order in which they joined.
type Owners = BTreeMap<FlowKey, usize>;

/// Four members share the flows. One member is killed, then another joins.
pub(super) fn show(scene: &Scene) -> Result<()> {
    let calls = scene.hosts.calls(FLOWS)?;
    let mut group = Group {
        scene,
        calls,
        members: Vec::new(),
        packets: 0,
    };
    (0..4).try_for_each(|_| group.start())?;
    let names = (1..=MEMBERS).map(|number| format!("{:>11}", format!("tcpdump {number}")));
    println!("{:21}{}{:>9}", "", names.collect::<String>(), "besides");
    let first = group.talk("four share the flows", &Owners::new(), None)?;
    group.kill(1)?;
    let second = group.talk("tcpdump 2 is killed", &first, Some(1))?;
    group.start()?;
    group.talk("another one joins", &second, Some(4))?;
    group.end()
}

/// The members of a group, and its lasting flows.
struct Group<'a> {
    scene: &'a Scene,
    calls: Calls,
    members: Vec<Tcpdump>,
    /// Number of packets on the wire so far.
    packets: usize,
}

struct Tcpdump {
    /// The process; `None` after it was killed.
    member: Option<Member>,
    file: PathBuf,
    /// Packets that the member had captured when the last call of `talk` began.
    before: usize,
}

impl Group<'_> {
    /// Starts a member, and waits until it has a share.
    fn start(&mut self) -> Result<()> {
        let file = self.scene.scratch.new_file("pcap");
        let program = Program::tcpdump(DEVICE, file.clone())?.group(GROUP, "flow");
        let member = program.start(&self.scene.scratch)?;
        library_of(&member)?;
        self.members.push(Tcpdump {
            member: Some(member),
            file: file.clone(),
            before: 0,
        });
        await_for("a newcomer's share", LIMIT, || {
            self.exchange()?;
            Ok((Capture::count_so_far(&file) > 0).then_some(()))
        })
    }

    fn kill(&mut self, member: usize) -> Result<()> {
        let member = self.members[member].member.take();
        let member = member.context("it has ended")?;
        member.signal("KILL")?;
        member.wait()?;
        self.exchange()
    }

    /// Sends a request and a reply in each flow, and waits until the members have captured all of
    /// them.
    fn exchange(&mut self) -> Result<()> {
        self.packets += self.calls.exchange()?;
        let expected = self.packets;
        await_for("the last packets", LIMIT, || {
            let files = self.members.iter().map(|it| &it.file);
            let captured: usize = files.map(|file| Capture::count_so_far(file)).sum();
            Ok((captured >= expected).then_some(()))
        })
    }

    /// Prints how many flows each member has now. `who` is the member that joined or was killed.
    /// Fails if a flow has moved since `before` from one member to another, and neither of the two
    /// is `who`.
    fn talk(&mut self, what: &str, before: &Owners, who: Option<usize>) -> Result<Owners> {
        for it in &mut self.members {
            it.before = Capture::count_so_far(&it.file);
        }
        self.exchange()?;
        let owners = self.owners();
        let concerns = |owner: usize| Some(owner) == who;
        let moved = before.iter().filter(|(flow, was)| {
            let is = owners.get(flow).copied().unwrap_or(MEMBERS);
            **was != is && !concerns(**was) && !concerns(is)
        });
        let moved = moved.count();
        let count = |member| owners.values().filter(|&&owner| owner == member).count();
        let counts = (0..MEMBERS).map(|member| format!("{:>11}", count(member)));
        println!("{what:21}{}{moved:>9}", counts.collect::<String>());
        ensure!(owners.len() == FLOWS, "{} of {FLOWS} flows", owners.len());
        ensure!(moved == 0, "{moved} flows of other members have moved");
        Ok(owners)
    }

    fn owners(&self) -> Owners {
        let mut owners = Owners::new();
        for (number, it) in self.members.iter().enumerate() {
            let packets = Capture::read_so_far(&it.file).packets;
            let now = packets.into_iter().skip(it.before);
            owners.extend(now.filter_map(|packet| Some((packet.flow?, number))));
        }
        owners
    }

    /// Stops all members, and checks that each packet was captured once.
    fn end(self) -> Result<()> {
        let mut captured = 0;
        for it in self.members {
            it.member.map_or(Ok(()), |it| it.stop().map(drop))?;
            captured += Capture::read(&it.file)?.packets.len();
        }
        println!(
            "\n{captured} packets captured of {} on the wire",
            self.packets
        );
        ensure!(captured == self.packets, "the packets don't add up");
        Ok(())
    }
}

//! Members of a group on XDP where each packet goes to several members. When a member ends, the
//! other members must get no packet twice.

use std::collections::BTreeSet;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use fanpcap_group::roster;
use fanpcap_group::view::{State, View};
use fanpcap_netns::remains::on_wire_that_ends_clean;
use fanpcap_netns::{DEVICE, Wire};
use fanpcap_testkit::await_for;
use fanpcap_testkit::await_for::LIMIT;

use super::load::{Load, print};
use super::recorder::{End, Recorder};
use super::records::{self, Got};
use super::scene::ON_XDP;
use super::table;

const GROUP: u16 = 7;

/// The duration of the load before and after a member's end.
const PART: Duration = Duration::from_millis(200);

#[test]
#[ignore = "needs root: run by make test"]
fn who_gets_all_gets_nothing_of_a_killed_member() -> Result<()> {
    on_wire_that_ends_clean(1, |wire| {
        let unread = one_of_three_ends(wire, "main = broadcast", End::HangsFirst, true)?;
        ensure!(
            unread > 1000,
            "the killed member had read nearly all packets"
        );
        Ok(())
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn who_gets_all_gets_nothing_of_one_that_leaves() -> Result<()> {
    on_wire_that_ends_clean(1, |wire| {
        one_of_three_ends(wire, "main = broadcast", End::Leaves, true).map(drop)
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn who_shares_packets_with_one_more_gets_none_twice() -> Result<()> {
    on_wire_that_ends_clean(1, |wire| {
        one_of_three_ends(wire, "main = double_steer_ip", End::HangsFirst, false).map(drop)
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn what_a_killed_member_alone_had_is_read() -> Result<()> {
    on_wire_that_ends_clean(1, |wire| {
        let unread = one_of_three_ends(wire, "main = steer_flow", End::HangsFirst, false)?;
        ensure!(unread == 0, "{unread} unread");
        Ok(())
    })
}

/// A successor reads the packets that the killed member had not read. No other member needs them,
/// because each has got its own copies.
#[test]
#[ignore = "needs root: run by make test"]
fn a_successor_reads_the_copies_of_who_was_before() -> Result<()> {
    on_wire_that_ends_clean(1, |wire| {
        let how: &[&str] = &[ON_XDP, "name=one"];
        let start = |how: &[&str]| Recorder::start_as(wire, DEVICE, GROUP, "main = broadcast", how);
        let mut members = vec![start(&[ON_XDP])?, start(how)?];
        await_live(2)?;
        let mut load = Load::start()?;
        thread::sleep(PART);
        members[1].end(End::HangsFirst)?;
        members.push(start(how)?);
        let gone = await_gone()?;
        load.pause()?;
        ensure!(gone.gone.inherited > 1000, "{:?}", gone.gone);
        let sent = load.sent().count();
        let count = |member: &Recorder| -> Result<usize> { Ok(numbers(member, &load)?.len()) };
        await_for("all packets", LIMIT, || {
            let both = count(&members[1])? + count(&members[2])?;
            Ok((both + 1 >= sent && count(&members[0])? >= sent).then_some(()))
        })?;
        let [first, second] = [1, 2].map(|at| numbers(&members[at], &load));
        let both: Vec<u32> = first?.into_iter().chain(second?).collect();
        let different: BTreeSet<u32> = both.iter().copied().collect();
        ensure!(different.len() == both.len(), "some packets came twice");
        members.iter_mut().try_for_each(Recorder::stop)
    })
}

/// An application may open a handle long before it reads from the handle.
#[test]
#[ignore = "needs root: run by make test"]
fn who_is_read_late_gets_all_that_came_for_it() -> Result<()> {
    on_wire_that_ends_clean(1, |wire| {
        let start = |how: &[&str]| Recorder::start_as(wire, DEVICE, GROUP, "main = broadcast", how);
        let late = start(&[ON_XDP, "idle"])?;
        let mut load = Load::start_at("20kpps")?;
        load.await_each_flow()?;
        let other = start(&[ON_XDP])?;
        await_for("the other to read", LIMIT, || {
            Ok((records::count(&other.file)? > 0).then_some(()))
        })?;
        load.await_each_flow()?;
        load.pause()?;
        late.call()?;
        let sent = load.sent().count();
        await_received(&late, Some(sent))?;
        let got: BTreeSet<u32> = numbers(&late, &load)?.into_iter().collect();
        ensure!(got.len() == sent, "{} of {sent}", got.len());
        [late, other].iter_mut().try_for_each(Recorder::stop)
    })
}

/// One of three members ends under load. Each survivor must get no packet twice. If `all` is set,
/// all packets go to all members, so each survivor must get every packet. The counters on its page
/// must agree. Returns the number of the ended member's packets that count as unread.
fn one_of_three_ends(wire: &Wire, program: &str, how: End, all: bool) -> Result<u64> {
    let start = |_| Recorder::start_as(wire, DEVICE, GROUP, program, &[ON_XDP]);
    let mut members = (0..3).map(start).collect::<Result<Vec<_>>>()?;
    await_live(3)?;
    let mut load = Load::start()?;
    thread::sleep(PART);
    members[1].end(how)?;
    let gone = await_gone()?.gone;
    thread::sleep(PART);
    load.pause()?;
    print(&format!("{program}: {gone:?}"));
    ensure!(
        gone.received == gone.dropped + gone.taken + gone.inherited + gone.unread,
        "{gone:?}"
    );
    ensure!(!all || gone.inherited == 0, "{gone:?}");
    for member in [&members[0], &members[2]] {
        let sent = load.sent().count();
        await_received(member, if all { Some(sent) } else { None })?;
        let got = numbers(member, &load)?;
        let different: BTreeSet<u32> = got.iter().copied().collect();
        let doubled = got.len() - different.len();
        ensure!(doubled == 0, "{doubled} packets of {} twice", got.len());
        ensure!(!all || got.len() == sent, "{} of {sent}", got.len());
    }
    members.iter_mut().try_for_each(Recorder::stop)?;
    Ok(gone.unread)
}

/// Waits until a member has recorded `count` packets and its page has the same count. If `count` is
/// `None`, waits for a second instead.
fn await_received(member: &Recorder, count: Option<usize>) -> Result<()> {
    let Some(count) = count else {
        thread::sleep(Duration::from_secs(1));
        return Ok(());
    };
    let id = member.id()?;
    let mut seen = (0, 0);
    let awaited = await_for("all packets", LIMIT, || {
        let mut entries = roster::entries()?.into_iter();
        let page = entries.find(|it| it.id() == id).and_then(|it| it.page);
        let received = page.context("no page")?.counters.received;
        seen = (records::count(&member.file)?, received);
        Ok((seen == (count as u64, count as u64)).then_some(()))
    });
    awaited.with_context(|| format!("recorded and counted {seen:?} of {count}"))
}

fn numbers(member: &Recorder, load: &Load) -> Result<Vec<u32>> {
    let got = records::read(&member.file)?.into_iter();
    let number = |got: Got| load.sent().number(got).number;
    Ok(got.map(number).collect())
}

fn await_live(count: usize) -> Result<()> {
    await_for("each member's share", LIMIT, || {
        let places = table::view(GROUP)?.places.into_iter();
        let live = places.filter(|it| it.state == State::Live);
        Ok((live.count() == count).then_some(()))
    })
}

/// Waits until the group counts one member as gone. Its packets have been read then, or given up as
/// unread.
fn await_gone() -> Result<View> {
    await_for("the end of one", LIMIT, || {
        let view = table::view(GROUP)?;
        Ok((view.gone.members == 1).then_some(view))
    })
}

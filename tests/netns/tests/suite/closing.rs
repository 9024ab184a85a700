//! Members that are killed during fast traffic: the packets that they lost, and the takeover.

use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use fanpcap_group::closing::{CloseError, Lost, close_counting};
use fanpcap_group::page::{GroupDir, HeldPage, MemberId};
use fanpcap_group::roster;
use fanpcap_linux::interface;
use fanpcap_linux::process::pidfd::Process;
use fanpcap_netns::{DEVICE, Wire, on_wire};
use fanpcap_testkit::await_for::{LIMIT, await_for};
use fanpcap_testkit::traffic::{self, Frame};
use fanpcap_testkit::{Member, Program, member, veth};

use crate::burdened::{self, while_flooding};
use crate::live::{await_totals, is_of, start, start_on};
use crate::trust::start_hog;

const GROUP: u16 = 7;

/// A member, and its page, process, identification and socket, which a takeover of its ring needs.
struct Watched {
    member: Member,
    page: HeldPage,
    process: Process,
    id: MemberId,
    socket: OwnedFd,
}

impl Watched {
    fn new(member: Member) -> Result<Self> {
        let pid = member.pid();
        let seen = roster::entries()?;
        let seen = seen.iter().find(|seen| is_of(seen, pid));
        let entry = seen.context("no page of the member")?;
        let (ifindex, id) = (entry.socket.ifindex, entry.id());
        let process = Process::open(pid)?;
        Ok(Self {
            page: GroupDir::of(ifindex, GROUP)?.hold(pid, id)?,
            socket: process.socket(pid, id.socket())?,
            process,
            id,
            member,
        })
    }

    fn kill(&self) -> Result<()> {
        self.member.signal("KILL")?;
        ensure!(self.process.ends_within(Some(LIMIT))?, "it lives");
        Ok(())
    }
}

/// The kernel must release the page's lock after it has closed the member's socket. A lock that is
/// bound to a descriptor would be released before that (decision 14).
#[test]
#[ignore = "needs root: run by make test"]
fn a_member_keeps_no_descriptor_of_its_page() -> Result<()> {
    on_wire(1, |wire| {
        let member = start(wire, 1, &["lb", "0", "0"])?.pop();
        let watched = Watched::new(member.context("no member")?)?;
        ensure!(watched.page.is_had()?, "the page is not locked");
        let pid = watched.member.pid();
        let ifindex = interface::index(DEVICE).context("the device")?;
        let page = fs::metadata(GroupDir::of(ifindex, GROUP)?.page(pid, watched.id))?;
        let is_page = |descriptor: &fs::DirEntry| {
            let file = fs::metadata(descriptor.path());
            file.is_ok_and(|file| (file.dev(), file.ino()) == (page.dev(), page.ino()))
        };
        let descriptors: Vec<_> =
            fs::read_dir(format!("/proc/{pid}/fd"))?.collect::<Result<_, _>>()?;
        ensure!(descriptors.len() > 3, "{descriptors:?}");
        let own = descriptors.iter().find(|it| is_page(it));
        ensure!(own.is_none(), "{own:?}");
        Ok(())
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn packets_on_their_way_to_a_closing_member_are_counted_too() -> Result<()> {
    const ROUNDS: usize = 12;
    on_wire(1, |wire| {
        let _healthy = start(wire, 1, &["lb", "33554432", "0"])?;
        let frames = traffic::frames(1, &traffic::flows(1, 20), 0..100)?;
        let (mut others, mut refused) = (0, 0);
        for round in 0..ROUNDS {
            let (offered, taken, lost) = kill_in_a_flood(wire, &frames)?;
            let of_round = lost.refused.context("the refused were not counted")?;
            refused += of_round;
            let its = taken + lost.unread + lost.dropped + of_round;
            others += offered.checked_sub(its).context("more than were offered")?;
            let what = format!("{others} packets at the other member in round {round}: {lost:?}");
            await_totals(&what, |sum| sum.received == others)?;
        }
        ensure!(
            refused > 0,
            "no packet came while a member was being closed"
        );
        Ok(())
    })
}

/// Kills a member in a flood. Returns the numbers of packets that were offered to the group, that
/// the killed member had taken, and that were lost with the member.
fn kill_in_a_flood(wire: &Wire, frames: &[Frame]) -> Result<(u64, u64, Lost)> {
    let mut killed = start_on(wire, 1, &["lb", "0", "0"])?;
    member::wait_for_members(GROUP, 2)?;
    let killed = Watched::new(killed.pop().context("no member")?)?;
    let before = veth::counters(DEVICE)?.received;
    let (page, closed) = while_flooding(2, frames, || {
        thread::sleep(Duration::from_millis(20));
        killed.kill()?;
        let closed = close_counting(&killed.page, killed.socket)?;
        Ok((killed.page, closed))
    })?;
    let offered = veth::counters(DEVICE)?.received - before;
    let page = page.record().context("no page")?;
    let lost = closed.lost(&page).context("nothing known")?;
    Ok((offered, page.taken.unwrap_or(0), lost))
}

#[test]
#[ignore = "needs root: run by make test"]
fn what_was_refused_is_unknown_while_somebody_else_has_the_socket() -> Result<()> {
    on_wire(1, |wire| {
        let mut killed = start(wire, 1, &["lb", "0", "0"])?;
        let killed = Watched::new(killed.pop().context("no member")?)?;
        let other = killed
            .process
            .socket(killed.member.pid(), killed.id.socket())?;
        killed.kill()?;
        let closed = close_counting(&killed.page, killed.socket)?;
        ensure!(closed.refused.is_none(), "{closed:?}");
        drop(other);
        Ok(())
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn a_child_that_reads_on_is_not_deafened() -> Result<()> {
    on_wire(1, |wire| {
        let program = Program::new(wire.compile("daemon")?, "ready")?;
        let daemon = program.args([DEVICE, "7", "lb", "100"]);
        let daemon = daemon.start(&wire.scratch)?;
        member::wait_for_members(GROUP, 1)?;
        let watched = Watched::new(daemon)?;
        watched.kill()?;
        let socket = match close_counting(&watched.page, watched.socket) {
            Err(CloseError::StillHeld(socket)) => socket,
            other => bail!("the child was not seen: {other:?}"),
        };
        let frames = traffic::frames(1, &traffic::flows(1, 20), 0..150)?;
        wire.send(&frames)?;
        await_for("the child's last word", LIMIT, || {
            let said = watched.member.said()?;
            Ok(said.contains("child has 100 packets").then_some(()))
        })?;
        await_for("the child's end", LIMIT, || {
            Ok((!watched.page.is_had()?).then_some(()))
        })?;
        let closed = close_counting(&watched.page, socket)?;
        let page = watched.page.record().context("no page")?;
        ensure!(page.taken == Some(100), "{page:?}");
        let lost = closed.lost(&page).context("nothing known")?;
        let all = (lost.unread, lost.dropped, lost.refused);
        ensure!(all == (50, 0, Some(0)), "{lost:?}");
        Ok(())
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn a_strangers_lock_keeps_no_dead_members_socket_in_the_group() -> Result<()> {
    on_wire(1, |wire| {
        let mut hog = start_hog(wire)?;
        let mut killed = start(wire, 1, &["lb", "0", "0"])?;
        let killed = Watched::new(killed.pop().context("no member")?)?;
        killed.kill()?;
        hog.wait_until_says(&format!("has {}.", killed.member.pid()))?;
        ensure!(
            !killed.page.is_had()?,
            "another process still holds the page's lock"
        );
        close_counting(&killed.page, killed.socket)?;
        Ok(())
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn a_handle_that_was_closed_is_nobodys() -> Result<()> {
    on_wire(1, |wire| {
        let stays = Watched::new(burdened::start(wire, &["slow", "0", "stays"])?)?;
        wire.send(&traffic::frames(1, &traffic::flows(1, 20), 0..10)?)?;
        stays.member.signal("INT")?;
        await_for("the handle's end", LIMIT, || {
            Ok((!stays.page.is_had()?).then_some(()))
        })?;
        close_counting(&stays.page, stays.socket)?;
        let lives = !stays.process.ends_within(Some(Duration::ZERO))?;
        ensure!(lives, "the process has ended");
        Ok(())
    })
}

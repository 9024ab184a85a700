//! The counters on the pages of busy members, which have slow callbacks, floods of packets, or many
//! signals.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use fanpcap_group::roster;
use fanpcap_linux::interface;
use fanpcap_netns::{DEVICE, FAR_DEVICE, Wire, on_wire};
use fanpcap_testkit::await_for::{LIMIT, await_for};
use fanpcap_testkit::traffic::{self, Frame};
use fanpcap_testkit::{Direction, Injector, Member, Program, member};

use crate::live::{await_totals, ensure_mostly_fresh, oldest_of, pages};
use crate::two_wires::on_two_wires;

const GROUP: u16 = 7;

/// The largest age that a page's counters may have in most readings. In the other readings, the
/// member may have waited for a CPU on a busy machine.
const FRESH: Duration = Duration::from_millis(600);

#[test]
#[ignore = "needs root: run by make test"]
fn counters_are_fresh_of_programs_that_are_slow() -> Result<()> {
    for (microseconds, packets) in [("1000", 4000), ("20000", 150)] {
        for how in [&[][..], &["immediate"]] {
            on_wire(1, |wire| {
                let _slow = start(wire, &[&["slow", microseconds], how].concat())?;
                wire.send(&traffic::frames(1, &traffic::flows(1, 20), 0..packets)?)?;
                ensure_fresh_while_behind(packets)
            })
            .with_context(|| format!("{microseconds} us, {how:?}"))?;
        }
    }
    Ok(())
}

fn ensure_fresh_while_behind(packets: u64) -> Result<()> {
    let page = || pages()?.pop().context("no page");
    await_for("the first numbers", LIMIT, || {
        Ok((page()?.counters.received > 0).then_some(()))
    })?;
    let (mut ages, mut last) = (Vec::new(), None);
    while ages.len() < 15 {
        let pages = pages()?;
        let page = pages.first().context("no page")?;
        if page.taken.is_none_or(|taken| taken >= packets) {
            break;
        }
        ages.push(oldest_of(&pages));
        last = Some(page.counters.received);
        thread::sleep(Duration::from_millis(100));
    }
    ensure!(
        last == Some(packets),
        "{last:?} counted while the reader was behind, not {packets}"
    );
    ensure_mostly_fresh(ages, FRESH)
}

#[test]
#[ignore = "needs root: run by make test"]
fn counters_are_read_ten_times_a_second_however_fast_packets_come() -> Result<()> {
    const PERIOD: Duration = Duration::from_secs(1);
    on_wire(1, |wire| {
        let [flow, ..] = traffic::flows(1, 1)[..] else {
            return Ok(());
        };
        let frames: Result<Vec<Frame>> = (0..100)
            .map(|number| traffic::frame(flow, Direction::Request, number, 1400))
            .collect();
        let frames = frames?;
        for how in [&[][..], &["immediate"]] {
            let member = start(wire, &[&["ticks", "500000"], how].concat())?;
            let (readings, lasted) = while_flooding(1, &frames, || {
                thread::sleep(Duration::from_millis(300));
                count_readings(PERIOD)
            })?;
            // A member reads its counters ten times a second, and sometimes also when its ring is
            // empty. So the test allows one reading in 90 ms.
            let most = lasted.as_millis() / 90 + 2;
            ensure!(
                u128::from(readings) <= most,
                "{readings} readings in {lasted:?}, {how:?}"
            );
            member.stop()?;
        }
        Ok(())
    })
}

/// Counts how often the page's counters were read in a period, until there were more than five
/// readings. Returns the number, and the length of the period, which may be longer than `period`.
fn count_readings(period: Duration) -> Result<(u64, Duration)> {
    let page = || pages()?.pop().context("no page");
    let (mut last, mut readings) = (page()?.read_ns, 0);
    let begin = Instant::now();
    await_for("more than five readings", LIMIT, || {
        let now = page()?.read_ns;
        readings += u64::from(now != last);
        last = now;
        let lasted = begin.elapsed();
        Ok((readings > 5 && lasted >= period).then_some((readings, lasted)))
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn signals_do_not_put_off_the_last_numbers() -> Result<()> {
    on_wire(1, |wire| {
        for how in [&[][..], &["immediate"]] {
            let member = start(wire, &[&["ticks", "10000"], how].concat())?;
            let frames = traffic::frames(1, &traffic::flows(1, 20), 0..507)?;
            wire.send(&frames[..500])?;
            thread::sleep(Duration::from_millis(30));
            wire.send(&frames[500..])?;
            await_totals("all", |sum| sum.received == 507 && sum.taken == 507)?;
            member.stop()?;
        }
        Ok(())
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn a_handler_that_asks_finds_each_packet_that_the_program_has() -> Result<()> {
    ensure_handler_finds_all_for(Duration::from_secs(2))
}

fn ensure_handler_finds_all_for(time: Duration) -> Result<()> {
    on_wire(1, |wire| {
        let member = start(wire, &["asks", "15"])?;
        let frames = traffic::frames(1, &traffic::flows(1, 20), 0..100)?;
        while_flooding(1, &frames, || {
            thread::sleep(time);
            Ok(())
        })?;
        let said = member.stop()?.said;
        ensure!(said.contains(" asked, 0 missing"), "{said}");
        let asked = said
            .split(", ")
            .find_map(|part| part.strip_suffix(" asked"));
        let asked: u64 = asked.with_context(|| said.clone())?.parse()?;
        ensure!(asked > 1000, "{said}");
        Ok(())
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn a_quiet_device_is_not_forgotten_for_a_busy_one() -> Result<()> {
    const BURST: u64 = 3000;
    on_two_wires(|wires| {
        let program = wires.program("burdened", &["f1^f2", "-", "-", "slow", "10000"])?;
        let program = program.set("PCAP_GROUP_f1", "7").set("PCAP_GROUP_f2", "8");
        let _member = program.set("PCAP_FANOUT", "hash").start(&wires.scratch)?;
        let page_of = |device| {
            let ifindex = interface::index(device).context("no device")?;
            let seen = roster::entries()?;
            let seen = seen.into_iter().find(|seen| seen.socket.ifindex == ifindex);
            seen.and_then(|seen| seen.page).context("no page")
        };
        let is_at = |count| move |received| (received == count).then_some(());
        wires.send(1, 0)?;
        await_for("the first packet", LIMIT, || {
            Ok(is_at(1)(page_of("f2")?.counters.received))
        })?;
        for number in 1..=20 {
            wires.send(1, number)?;
        }
        for number in 0..BURST {
            wires.send(0, u8::try_from(number % 256)?)?;
        }
        await_for("the quiet one's", LIMIT, || {
            Ok(is_at(21)(page_of("f2")?.counters.received))
        })?;
        let busy = page_of("f1")?;
        ensure!(busy.taken.is_some_and(|taken| taken < BURST), "{busy:?}");
        Ok(())
    })
}

/// Runs `work` while `senders` threads send the frames as fast as they can.
pub(crate) fn while_flooding<T>(
    senders: usize,
    frames: &[Frame],
    work: impl FnOnce() -> Result<T>,
) -> Result<T> {
    let done = &AtomicBool::new(false);
    let injectors: Vec<Injector> = (0..senders)
        .map(|_| Ok(Injector::open(FAR_DEVICE)?))
        .collect::<Result<_>>()?;
    let flood = |injector: Injector| -> Result<()> {
        while !done.load(Ordering::Relaxed) {
            for frame in frames {
                injector.send(&frame.bytes)?;
            }
        }
        Ok(())
    };
    thread::scope(|scope| {
        let senders: Vec<_> = injectors
            .into_iter()
            .map(|injector| scope.spawn(move || flood(injector)))
            .collect();
        let result = work();
        done.store(true, Ordering::Relaxed);
        for sender in senders {
            sender.join().expect("the sender ends")?;
        }
        result
    })
}

/// Starts `c/burdened.c` as a member. `how` has the program's arguments, which say how the member
/// is kept busy.
pub(crate) fn start(wire: &Wire, how: &[&str]) -> Result<Member> {
    let program = wire.scratch.file("burdened");
    if !program.exists() {
        wire.compile("burdened")?;
    }
    let program = Program::new(program, "ready")?.args([DEVICE, "7", "hash"]);
    let member = program.args(how).start(&wire.scratch)?;
    member::wait_for_members(GROUP, 1)?;
    Ok(member)
}

/// Tests that last too long for the usual runs.
mod long {
    use super::*;

    #[test]
    #[ignore = "needs root: run by make test"]
    fn a_handler_that_asks_for_long_finds_each_packet_that_the_program_has() -> Result<()> {
        ensure_handler_finds_all_for(Duration::from_secs(8))
    }
}

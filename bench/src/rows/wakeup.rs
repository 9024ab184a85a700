//! How soon single packets reach readers on the XDP engine: at three rates, by the ways to wait.

use std::time::Duration;

use super::latency::Latency;
use crate::figure::Figure;
use crate::measure::Column;
use crate::reader::{Settings, Work};
use crate::row::{Goal, Must, Row};

const COLUMNS: [Column; 2] = [
    Column::new("xdp", "fanpcap, xdp"),
    Column::new("system", "libpcap"),
];

/// The handle's time-out in milliseconds, and a bound in microseconds that leaves the scheduler and
/// the kernel's timers 10 ms.
const TIMEOUT: u32 = 100;
const BOUND: Must = Must::AtMost(110_000.0);

/// Microseconds by which immediate mode may be later than libpcap's.
const LATER: Must = Must::AtMost(100.0);

/// Readers that block in libpcap.
const fn blocking(what: &'static str, rate: Rate) -> Latency {
    at(what, rate, Work::Time, HELD)
}

/// Applications that poll the handle's descriptor without a time-out.
const fn polling(what: &'static str, rate: Rate) -> Latency {
    at(what, rate, Work::TimePolling, HELD)
}

const fn immediate(what: &'static str, rate: Rate) -> Latency {
    at(what, rate, Work::Time, AT_ONCE)
}

const fn at(what: &'static str, rate: Rate, work: Work, settings: Settings) -> Latency {
    let Rate(probes, microseconds) = rate;
    Latency {
        what,
        settings,
        work,
        columns: &COLUMNS,
        probes,
        interval: Duration::from_micros(microseconds),
    }
}

/// Number of probes, and the microseconds between them.
#[derive(Clone, Copy)]
struct Rate(u64, u64);

/// 10 a second.
const RARE: Rate = Rate(20, 100_000);
/// 1000 a second.
const SLOW: Rate = Rate(500, 1_000);
/// 100,000 a second.
const FAST: Rate = Rate(30_000, 10);

const HELD: Settings = Settings {
    timeout: Some(TIMEOUT),
    ..Settings::DEFAULT
};
const AT_ONCE: Settings = Settings {
    immediate: true,
    ..HELD
};

static BLOCKING_RARE: Latency = blocking("10 a second, blocking, ", RARE);
static BLOCKING_SLOW: Latency = blocking("1000 a second, blocking, ", SLOW);
static BLOCKING_FAST: Latency = blocking("100000 a second, blocking, ", FAST);
static POLLING_RARE: Latency = polling("10 a second, polling, ", RARE);
static POLLING_SLOW: Latency = polling("1000 a second, polling, ", SLOW);
static POLLING_FAST: Latency = polling("100000 a second, polling, ", FAST);
static IMMEDIATE_RARE: Latency = immediate("10 a second, ", RARE);
static IMMEDIATE_SLOW: Latency = immediate("1000 a second, ", SLOW);
static IMMEDIATE_FAST: Latency = immediate("100000 a second, ", FAST);

const fn bounded(what: &'static str, by: &'static Latency) -> Goal {
    Goal::ratio(what, by, Figure::LatencyP99Us, BOUND).alone("xdp")
}

const fn beside(what: &'static str, by: &'static Latency) -> Goal {
    Goal::ratio(what, by, Figure::LatencyP99Us, LATER)
        .between("xdp", "system")
        .difference()
}

pub(super) const WAKEUP: Row = Row {
    name: "wakeup",
    what: "age of single packets on the XDP engine: \
           blocking, polling the descriptor, immediate mode",
    goals: &[
        bounded("10/s, blocking, p99 in us", &BLOCKING_RARE),
        bounded("1000/s, blocking, p99 in us", &BLOCKING_SLOW),
        bounded("100000/s, blocking, p99 in us", &BLOCKING_FAST),
        bounded("10/s, polling, p99 in us", &POLLING_RARE),
        bounded("1000/s, polling, p99 in us", &POLLING_SLOW),
        bounded("100000/s, polling, p99 in us", &POLLING_FAST),
        beside("10/s, immediate, p99, difference in us", &IMMEDIATE_RARE),
        beside("1000/s, immediate, p99, difference", &IMMEDIATE_SLOW),
        beside("100000/s, immediate, p99, difference", &IMMEDIATE_FAST),
    ],
    published: &[],
};

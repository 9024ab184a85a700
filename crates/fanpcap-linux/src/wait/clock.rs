//! Clocks, and sleeping until a time of `CLOCK_MONOTONIC`.

use crate::errno::check;
use std::sync::OnceLock;
use std::{fs, io};

/// Returns nanoseconds of the kernel's own `CLOCK_MONOTONIC`, which all processes of a machine
/// share. BPF programs stamp packets with this clock. In a time namespace, the process's
/// `CLOCK_MONOTONIC` differs from the kernel's.
pub fn monotonic_ns() -> u64 {
    process_ns().saturating_add_signed(-namespace_ns())
}

/// Returns nanoseconds of the process's `CLOCK_MONOTONIC`. This function is async-signal-safe.
/// [`monotonic_ns`] is not, because its first call reads files.
pub(crate) fn process_ns() -> u64 {
    clock_ns(libc::CLOCK_MONOTONIC)
}

/// Returns the time of [`monotonic_ns`] at the kernel's last tick, some milliseconds ago. Reads
/// only memory, not the hardware's clock.
pub fn coarse_ns() -> u64 {
    clock_ns(libc::CLOCK_MONOTONIC_COARSE).saturating_add_signed(-namespace_ns())
}

/// Returns the offset that the process's time namespace adds to the kernel's monotonic clock.
fn namespace_ns() -> i64 {
    static OFFSET: OnceLock<i64> = OnceLock::new();
    *OFFSET.get_or_init(|| namespace_offset().unwrap_or(0))
}

/// Reads the offset of the process's time namespace. /proc/self/timens_offsets shows the offset for
/// the process's children. `None` if the children begin in another time namespace than the
/// process's own.
fn namespace_offset() -> Option<i64> {
    let own = fs::read_link("/proc/self/ns/time").ok()?;
    let childrens = fs::read_link("/proc/self/ns/time_for_children").ok()?;
    let offsets = fs::read_to_string("/proc/self/timens_offsets").ok()?;
    monotonic_of(&offsets).filter(|_| own == childrens)
}

/// Returns the offset of the monotonic clock in the text of /proc/PID/timens_offsets. Each line has
/// a name, seconds and nanoseconds.
fn monotonic_of(offsets: &str) -> Option<i64> {
    let line = offsets
        .lines()
        .find_map(|it| it.strip_prefix("monotonic"))?;
    let mut numbers = line.split_whitespace().map(str::parse);
    let (seconds, nanoseconds): (i64, i64) = (numbers.next()?.ok()?, numbers.next()?.ok()?);
    seconds.checked_mul(1_000_000_000)?.checked_add(nanoseconds)
}

/// Nanoseconds of CPU time that the calling thread has used (`CLOCK_THREAD_CPUTIME_ID`).
pub fn thread_cpu_ns() -> u64 {
    clock_ns(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// Returns nanoseconds of `CLOCK_TAI`, which has no leap seconds. `CLOCK_TAI` equals the time of
/// day if no process has set the kernel's TAI offset.
pub fn tai_ns() -> u64 {
    clock_ns(libc::CLOCK_TAI)
}

/// The time of day in nanoseconds since 1970.
pub fn realtime_ns() -> u64 {
    clock_ns(libc::CLOCK_REALTIME)
}

/// Returns the time of day minus [`monotonic_ns`], in nanoseconds, exact to about a microsecond.
/// Reads both clocks several times, and uses the fastest of these readings.
pub fn realtime_offset_ns() -> u64 {
    let readings = (0..READINGS).map(|_| {
        let before = monotonic_ns();
        let time = realtime_ns();
        let took = monotonic_ns().saturating_sub(before);
        (took, time.wrapping_sub(before.saturating_add(took / 2)))
    });
    readings.min().map_or(0, |(_, offset)| offset)
}

/// How many times both clocks are read. More than one reading is needed, because the thread may
/// lose its CPU during a reading.
const READINGS: usize = 3;

fn clock_ns(clock: libc::clockid_t) -> u64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `now` is a live timespec, and these clocks always exist.
    let _ = unsafe { libc::clock_gettime(clock, &raw mut now) };
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    seconds * NANOSECONDS + u64::try_from(now.tv_nsec).unwrap_or(0)
}

/// Whether a service such as chrony or ntpd synchronizes the time of day with other machines
/// (`STA_UNSYNC` of adjtimex(2)). True if adjtimex(2) fails.
pub fn is_synchronized() -> bool {
    // SAFETY: all zeros are a valid struct timex, with which the call changes nothing.
    let mut state: libc::timex = unsafe { std::mem::zeroed() };
    // SAFETY: `state` is a live struct timex.
    let clock = unsafe { libc::adjtimex(&raw mut state) };
    clock < 0 || state.status & libc::STA_UNSYNC == 0
}

/// Sleeps until [`monotonic_ns`] reaches `due`, or until a signal handler has run.
pub fn sleep_until(due: u64) {
    let due = due.saturating_add_signed(namespace_ns());
    let until = libc::timespec {
        tv_sec: libc::time_t::try_from(due / NANOSECONDS).unwrap_or(libc::time_t::MAX),
        tv_nsec: libc::c_long::try_from(due % NANOSECONDS).unwrap_or(0),
    };
    // SAFETY: `until` lives through the call. The call writes no remaining time.
    unsafe {
        libc::clock_nanosleep(
            libc::CLOCK_MONOTONIC,
            libc::TIMER_ABSTIME,
            &raw const until,
            std::ptr::null_mut(),
        )
    };
}

/// Makes the kernel end the calling thread's sleeps on time (`PR_SET_TIMERSLACK`). By default, the
/// kernel may lengthen a sleep by 50 us, so that it can wake several threads at once.
///
/// # Errors
/// The error of prctl(2).
pub fn wake_on_time() -> io::Result<()> {
    // SAFETY: this option takes a plain number.
    check(unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1_u64) })
}

/// Returns a time, given in seconds since 1970, in the format of RFC 3339, in UTC. A time after the
/// year 9999 is shown as the last second of that year.
pub fn rfc3339(seconds: u64) -> String {
    let seconds = libc::time_t::try_from(seconds.min(253_402_300_799)).unwrap_or(libc::time_t::MAX);
    // SAFETY: all zeros are a valid struct tm.
    let mut utc: libc::tm = unsafe { std::mem::zeroed() };
    // SAFETY: both structs live through the call.
    unsafe { libc::gmtime_r(&raw const seconds, &raw mut utc) };
    format!(
        "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z",
        utc.tm_year + 1900,
        utc.tm_mon + 1,
        utc.tm_mday,
        utc.tm_hour,
        utc.tm_min,
        utc.tm_sec
    )
}

const NANOSECONDS: u64 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_date_writes_them() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_795_448_078, "2026-11-23T15:34:38Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
            (u64::MAX, "9999-12-31T23:59:59Z"),
        ] {
            assert_eq!(rfc3339(seconds), text);
        }
    }

    #[test]
    fn the_offset_leads_to_the_time_of_day() {
        let since = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap();
        let time = monotonic_ns().wrapping_add(realtime_offset_ns());
        assert!(u128::from(time).abs_diff(since.as_nanos()) < 1_000_000_000);
        let noise = realtime_offset_ns().abs_diff(realtime_offset_ns());
        assert!(noise < 1_000_000, "{noise}");
    }

    #[test]
    fn a_time_namespaces_offset_is_its_monotonic_line() {
        let offsets = "monotonic           86400       500\nboottime                0         0\n";
        assert_eq!(monotonic_of(offsets), Some(86_400_000_000_500));
        assert_eq!(monotonic_of("monotonic -3600 0"), Some(-3_600_000_000_000));
        assert_eq!(monotonic_of("boottime 1 0"), None);
        assert_eq!(monotonic_of("monotonic 1"), None);
    }

    #[test]
    fn a_sleep_is_over_when_its_time_has_come_and_not_before() {
        let due = monotonic_ns() + 2_000_000;
        sleep_until(due);
        assert!(monotonic_ns() >= due);
        sleep_until(1);
    }
}

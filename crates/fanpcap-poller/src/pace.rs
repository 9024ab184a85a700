//! Tells whether a queue's thread is too slow for the packets that come.

/// Whether a thread keeps up with its source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Pace {
    /// It keeps up.
    #[default]
    KeepsUp,
    /// Packets fill most of the source's memory. The thread may only have been without a CPU, and
    /// take them all at once. This was its CPU time then, in nanoseconds.
    Fills(u64),
    /// It is too slow, until it has taken most of the packets that wait.
    IsLate,
}

/// If packets wait in so many quarters of the source's memory, it fills.
const FULL: u8 = 3;

/// If packets wait in less quarters of the source's memory, the thread keeps up. All users together
/// have the rest for packets that come in bursts.
const ROOM: u8 = 1;

/// The CPU time in which the thread must come below [`FULL`].
const PATIENCE_NS: u64 = 1_000_000;

impl Pace {
    /// Looks at the source again. `has_filled` tells whether packets wait in so many quarters of
    /// its memory, and `cpu_ns` the thread's CPU time.
    pub(crate) fn look(
        &mut self,
        has_filled: impl Fn(u8) -> bool,
        cpu_ns: impl Fn() -> u64,
    ) -> Self {
        *self = match *self {
            Self::KeepsUp if has_filled(FULL) => Self::Fills(cpu_ns()),
            Self::KeepsUp => Self::KeepsUp,
            Self::Fills(_) | Self::IsLate if !has_filled(ROOM) => Self::KeepsUp,
            Self::IsLate => Self::IsLate,
            Self::Fills(since_ns) => {
                let now_ns = cpu_ns();
                match now_ns.saturating_sub(since_ns) < PATIENCE_NS {
                    true => Self::Fills(since_ns),
                    false if has_filled(FULL) => Self::IsLate,
                    false => Self::Fills(now_ns),
                }
            }
        };
        *self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the thread is after each look at a source with so many quarters at this CPU time.
    fn paces(looks: &[(u8, u64)]) -> Vec<Pace> {
        let mut pace = Pace::default();
        let looks = looks.iter();
        let look = |&(filled, us): &(u8, u64)| pace.look(|it| it <= filled, || us * 1000);
        looks.map(look).collect()
    }

    #[test]
    fn a_thread_that_had_no_cpu_takes_what_waits() {
        let looks = [(0, 0), (2, 100), (3, 200), (3, 900), (1, 1100), (0, 1150)];
        let paces = paces(&looks);
        assert!(!paces.contains(&Pace::IsLate), "{paces:?}");
        assert_eq!(paces[4..], [Pace::Fills(200_000), Pace::KeepsUp]);
    }

    /// It takes longer than that, but becomes less.
    #[test]
    fn a_thread_that_catches_up_slowly_is_not_late() {
        let looks = [(3, 0), (2, 1500), (2, 2600), (1, 4000), (0, 5000)];
        let paces = paces(&looks);
        assert!(!paces.contains(&Pace::IsLate), "{paces:?}");
    }

    #[test]
    fn a_thread_that_does_not_catch_up_is_late_until_most_is_taken() {
        let looks = [
            (3, 5000),
            (3, 5999),
            (3, 6000),
            (2, 6100),
            (1, 9000),
            (0, 9100),
            (3, 9200),
        ];
        let is_late: Vec<bool> = paces(&looks).iter().map(|it| *it == Pace::IsLate).collect();
        assert_eq!(is_late, [false, false, true, true, true, false, false]);
    }

    /// It would leave others a quarter of the memory for good.
    #[test]
    fn a_thread_whose_source_stays_nearly_full_is_late() {
        let looks: Vec<(u8, u64)> = (0..20)
            .map(|it| (2 + u8::from(it % 2 == 1), it * 300))
            .collect();
        assert!(paces(&looks).contains(&Pace::IsLate));
    }
}

//! Reasons why a run does not count: its counters disagree, or other processes had the CPU.

use std::fmt;
use std::iter::Sum;

use crate::wire::Arrived;

/// Counters of one or more applications at their end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    /// Received packets, including the dropped packets.
    pub(crate) received: u64,
    /// Packets that were dropped because a ring was full.
    pub(crate) dropped: u64,
    /// Packets that the application handled.
    pub(crate) delivered: u64,
}

impl Sum for Tally {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |sum, one| Self {
            received: sum.received + one.received,
            dropped: sum.dropped + one.dropped,
            delivered: sum.delivered + one.delivered,
        })
    }
}

/// Counters of a run's parts, after all rings were drained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Counters {
    /// Frames that the generator counted.
    pub(crate) sent: u64,
    /// Packets that the reader's device counted.
    pub(crate) arrived: u64,
    /// Packets that the device dropped.
    pub(crate) lost: u64,
    /// Number of times that the kernel delivers each packet: once to each group, and to each reader
    /// without a group.
    pub(crate) copies: u64,
    /// `ps_recv`, summed over readers.
    pub(crate) received: u64,
    /// `ps_drop`, summed over readers.
    pub(crate) dropped: u64,
    /// Calls of the callback.
    pub(crate) delivered: u64,
}

/// Why a run is discarded.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Refusal {
    /// The device got fewer or more frames than were sent.
    Arrived(Counters),
    /// libpcap's count differs from the device's.
    Received(Counters),
    /// Delivered and dropped packets do not add up.
    Delivered(Counters),
    /// The poller counted fewer or more packets than the device.
    Poller { arrived: u64, received: u64 },
    /// No packet was delivered.
    Nothing(Counters),
    /// A figure is not finite.
    NotFinite(&'static str),
    /// Fewer or more frames reached the device than expected.
    Taken {
        sent: u64,
        expected: u64,
        arrived: u64,
    },
    /// The generator had only this share of its core.
    Generator(f64),
    /// The generator sent this share of the requested frames.
    Late(f64),
    /// The generators of a run sent at the same time only for this share of the time.
    Apart(f64),
    /// Other processes took this share of a core.
    Foreign(usize, f64),
}

/// Minimum share of its core that a flood's generator must have. The generator of a flood never
/// sleeps.
const OWN_SHARE: f64 = 0.9;
/// Allowed deviation from a requested rate.
pub(crate) const OFF_RATE: f64 = 0.02;
/// Allowed share of the time in which only one of several generators sends.
const OFF_TIME: f64 = 0.05;
/// Allowed foreign share of a core whose reader wakes for each packet: the kernel accounts wake-ups
/// to no process.
const FOREIGN_SHARE_WOKEN: f64 = 0.3;

impl Counters {
    /// The counters of a run in which the kernel delivers each packet once.
    pub(crate) fn new(sent: u64, arrived: Arrived, tally: Tally) -> Self {
        Self {
            sent,
            arrived: arrived.received,
            lost: arrived.dropped,
            copies: 1,
            received: tally.received,
            dropped: tally.dropped,
            delivered: tally.delivered,
        }
    }

    /// Adds packets that were dropped before a poller saw them, so that none of the groups got
    /// them.
    pub(crate) fn with_drops(self, dropped: u64) -> Self {
        Self {
            received: self.received + dropped * self.copies,
            dropped: self.dropped + dropped * self.copies,
            ..self
        }
    }

    /// Refuses counters that disagree or are 0.
    pub(crate) fn agree(&self) -> Result<(), Refusal> {
        if self.sent != self.arrived {
            Err(Refusal::Arrived(*self))
        } else if self.arrived * self.copies != self.received {
            Err(Refusal::Received(*self))
        } else if self.received != self.delivered + self.dropped {
            Err(Refusal::Delivered(*self))
        } else if self.delivered == 0 {
            Err(Refusal::Nothing(*self))
        } else {
            Ok(())
        }
    }
}

impl Refusal {
    /// Whether the run is refused because other processes used the CPUs.
    pub(crate) fn is_for_others(&self) -> bool {
        matches!(
            self,
            Self::Generator(_) | Self::Late(_) | Self::Apart(_) | Self::Foreign(..)
        )
    }
}

/// Refuses a run whose poller got fewer or more packets than the device.
pub(crate) fn from_device(arrived: u64, received: u64) -> Result<(), Refusal> {
    if arrived != received {
        return Err(Refusal::Poller { arrived, received });
    }
    Ok(())
}

/// Refuses a flood without a reader if the device took more or fewer frames than expected.
pub(crate) fn into_nothing(sent: u64, expected: u64, arrived: u64) -> Result<(), Refusal> {
    if expected != arrived {
        return Err(Refusal::Taken {
            sent,
            expected,
            arrived,
        });
    }
    Ok(())
}

/// Refuses a flood whose generator waited for its core.
pub(crate) fn generator_share(share: f64) -> Result<(), Refusal> {
    if share < OWN_SHARE {
        return Err(Refusal::Generator(share));
    }
    Ok(())
}

/// Refuses a run whose generator was off its rate by more than `allowed`.
pub(crate) fn on_time(share: f64, allowed: f64) -> Result<(), Refusal> {
    if (1.0 - share).abs() > allowed {
        return Err(Refusal::Late(share));
    }
    Ok(())
}

/// Refuses a run whose generators did not send at the same time.
pub(crate) fn at_once(share: f64) -> Result<(), Refusal> {
    if 1.0 - share > OFF_TIME {
        return Err(Refusal::Apart(share));
    }
    Ok(())
}

/// Refuses a run during which other processes used more than the share `allowed` of a core. If the
/// reader wakes for each packet (`woken`), a larger share of the core is allowed.
pub(crate) fn foreign_share(
    cpu: usize,
    share: f64,
    (allowed, woken): (f64, bool),
) -> Result<(), Refusal> {
    let most = if woken { FOREIGN_SHARE_WOKEN } else { allowed };
    if share > most {
        return Err(Refusal::Foreign(cpu, share));
    }
    Ok(())
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Arrived(c) => write!(
                f,
                "counters disagree: the generator sent {}, the device received {} and dropped {}",
                c.sent, c.arrived, c.lost
            ),
            Self::Received(c) => write!(
                f,
                "counters disagree: the device received {} for {} readers or groups, pcap_stats counts {}",
                c.arrived, c.copies, c.received
            ),
            Self::Delivered(c) => write!(
                f,
                "counters disagree: pcap_stats counts {} received and {} dropped, the callback got {}",
                c.received, c.dropped, c.delivered
            ),
            Self::Poller { arrived, received } => write!(
                f,
                "counters disagree: the device received {arrived}, the poller counts {received}"
            ),
            Self::Nothing(c) => write!(
                f,
                "the device received {} packets, but none was delivered",
                c.arrived
            ),
            Self::NotFinite(figure) => write!(f, "{figure}: not a number"),
            Self::Taken {
                sent,
                expected,
                arrived,
            } => write!(
                f,
                "counters disagree: of {sent} frames sent the device counted {arrived}, not {expected}"
            ),
            Self::Generator(share) => {
                write!(f, "the generator had {:.0} % of its CPU", share * 100.0)
            }
            Self::Late(share) => {
                write!(
                    f,
                    "the generator sent {:.1} % of the requested rate",
                    share * 100.0
                )
            }
            Self::Apart(share) => {
                write!(
                    f,
                    "the generators sent at the same time for only {:.0} % of the time",
                    share * 100.0
                )
            }
            Self::Foreign(cpu, share) => {
                write!(f, "other programs had {:.0} % of CPU {cpu}", share * 100.0)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: Counters = Counters {
        sent: 100,
        arrived: 100,
        lost: 0,
        copies: 1,
        received: 100,
        dropped: 7,
        delivered: 93,
    };

    #[test]
    fn counters_that_agree_pass() {
        assert_eq!(GOOD.agree(), Ok(()));
    }

    #[test]
    fn every_disagreement_is_refused() {
        let lost_on_the_wire = Counters { sent: 101, ..GOOD };
        assert!(matches!(lost_on_the_wire.agree(), Err(Refusal::Arrived(_))));
        let seen_by_nobody = Counters {
            received: 99,
            ..GOOD
        };
        assert!(matches!(seen_by_nobody.agree(), Err(Refusal::Received(_))));
        let seen_by_one_group_of_two = Counters { copies: 2, ..GOOD };
        assert!(matches!(
            seen_by_one_group_of_two.agree(),
            Err(Refusal::Received(_))
        ));
        let left_in_the_ring = Counters {
            delivered: 92,
            ..GOOD
        };
        assert!(matches!(
            left_in_the_ring.agree(),
            Err(Refusal::Delivered(_))
        ));
        let delivered_twice = Counters {
            delivered: 94,
            ..GOOD
        };
        assert!(matches!(
            delivered_twice.agree(),
            Err(Refusal::Delivered(_))
        ));
    }

    #[test]
    fn what_a_poller_did_not_get_is_dropped_for_each_group() {
        let counters = Counters {
            received: 180,
            delivered: 173,
            copies: 2,
            ..GOOD
        };
        assert_eq!(counters.with_drops(10).agree(), Ok(()));
        assert!(counters.with_drops(9).agree().is_err());
        assert!(from_device(100, 99).is_err() && from_device(100, 100).is_ok());
    }

    #[test]
    fn a_run_without_a_packet_is_refused() {
        let all_dropped = Counters {
            dropped: 100,
            delivered: 0,
            ..GOOD
        };
        assert!(matches!(all_dropped.agree(), Err(Refusal::Nothing(_))));
        let none_sent = Counters {
            sent: 0,
            arrived: 0,
            received: 0,
            dropped: 0,
            delivered: 0,
            ..GOOD
        };
        assert!(matches!(none_sent.agree(), Err(Refusal::Nothing(_))));
    }

    #[test]
    fn a_core_that_was_not_ours_alone_is_refused() {
        let on_time = |share| on_time(share, OFF_RATE);
        assert!(on_time(0.97).is_err() && on_time(0.99).is_ok() && on_time(1.03).is_err());
        assert!(generator_share(0.89).is_err() && generator_share(0.97).is_ok());
        let taken = |share, woken| foreign_share(1, share, (0.05, woken)).is_err();
        assert!(taken(0.06, false) && !taken(0.04, false));
        assert!(!taken(0.06, true) && taken(0.31, true));
    }
}

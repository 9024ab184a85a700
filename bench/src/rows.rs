//! The rows: what each measures, and its goals.

mod compile;
mod unread;
mod trials;
mod copies;
mod dicap;
mod fanout;
mod flood;
mod generator;
mod headers;
mod identification;
mod latency;
mod membership;
mod peers;
mod queues;
mod polled;
mod placement;
mod paper;
mod probes;
mod real;
mod steering;
mod wakeup;
mod xdp;
mod xdp_cost;
mod xdp_members;

use crate::measure::Column;
use crate::row::Row;

/// The columns of rows that compare the two libraries.
const SIDES: [Column; 2] = [
    Column::new("ours", "fanpcap"),
    Column::new("system", "libpcap"),
];

/// All of them.
pub(crate) static ROWS: &[&Row] = &[
    &flood::TPACKET,
    &flood::TPACKET_CPU,
    &flood::SNAPLEN,
    &probes::IMMEDIATE,
    &probes::OPEN,
    &fanout::FANOUT,
    &real::FANOUT_REAL,
    &generator::GEN,
    &peers::PEERS,
    &xdp::XDP,
    &xdp::XDP_SKB,
    &xdp_cost::XDP_COST,
    &peers::XDP_PEERS,
    &xdp_members::XDP_MEMBERS,
    &wakeup::WAKEUP,
    &steering::STEERING,
    &compile::COMPILE,
    &copies::COPIES,
    &membership::MEMBERSHIP,
    &placement::PLACEMENT,
    &placement::LINKS,
    &paper::PAPER,
    &dicap::DICAP,
    &headers::HEADERS,
    &identification::IDS,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_differ() {
        let mut names: Vec<_> = ROWS.iter().map(|row| row.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), ROWS.len());
    }

    #[test]
    fn every_goal_is_about_columns_of_its_measure() {
        for goal in ROWS.iter().flat_map(|row| row.goals) {
            let keys: Vec<_> = goal.measure.columns().iter().map(|c| c.key).collect();
            assert!(keys.contains(&goal.of), "{}: {keys:?}", goal.what);
            let alone = goal.compared == crate::row::Compared::Alone;
            assert!(alone || keys.contains(&goal.to), "{}: {keys:?}", goal.what);
            let over = goal.over.is_none_or(|over| keys.contains(&over));
            assert!(over, "{}: {keys:?}", goal.what);
        }
    }
}

//! Views of the interval between two snapshots of a made-up machine, for tests.

use fanpcap_snapshot::Snapshot;
pub(crate) use fanpcap_snapshot::fixture::*;

use super::rates::Rates;
use super::view::View;

/// The view of the interval between the snapshots `before()` and `after()`.
pub(crate) fn view() -> View {
    between(&before(), &after())
}

/// The view of the interval between two given snapshots.
pub(crate) fn between(before: &Snapshot, after: &Snapshot) -> View {
    let mut rates = Rates::default();
    rates.next(before.clone());
    rates.next(after.clone())
}

//! Views between two snapshots of a made-up machine, for tests.

use fanpcap_snapshot::Snapshot;
pub(crate) use fanpcap_snapshot::fixture::*;

use super::rates::Rates;
use super::view::View;

/// The view between the two snapshots.
pub(crate) fn view() -> View {
    between(&before(), &after())
}

/// The view between two given snapshots.
pub(crate) fn between(before: &Snapshot, after: &Snapshot) -> View {
    let mut rates = Rates::default();
    rates.next(before.clone());
    rates.next(after.clone())
}

//! Computes the rank of each live slot.

use crate::layout::SLOTS;
use crate::slot::Slot;

/// The live slots in the order of their rank, so that as few ranks as possible change.
///
/// A live slot of `old` keeps its rank. A newcomer gets the rank of a slot that is gone. If there
/// is no such rank, the newcomer gets the next rank after the last. If no newcomer takes the rank
/// of a slot that is gone, the slot with the last rank gets it. The order of `live` does not
/// matter. A slot that is listed twice counts once.
pub fn ranks(old: &[Slot], live: &[Slot]) -> Vec<Slot> {
    let mut waiting = [false; SLOTS];
    for slot in live {
        waiting[slot.index()] = true;
    }
    let mut ranks: Vec<Option<Slot>> = Vec::new();
    for &slot in old {
        let stays = std::mem::take(&mut waiting[slot.index()]);
        ranks.push(stays.then_some(slot));
    }
    for newcomer in Slot::all().filter(|slot| waiting[slot.index()]) {
        match ranks.iter_mut().find(|rank| rank.is_none()) {
            Some(free) => *free = Some(newcomer),
            None => ranks.push(Some(newcomer)),
        }
    }
    while let Some(free) = ranks.iter().position(Option::is_none) {
        ranks.swap_remove(free);
    }
    ranks.into_iter().flatten().collect()
}

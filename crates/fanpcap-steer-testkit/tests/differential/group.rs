//! A group with a drawn table, in the kernel and as the evaluator reads it.

use std::os::fd::AsFd;
use std::sync::atomic::Ordering::Relaxed;

use fanpcap_bpf::Object;
use fanpcap_buckets::layout::{BUCKETS, OWN, RANK_COUNT, RANKS, SIZE, SLOTS};
use fanpcap_linux::bpf::{self, LoadError, Loaded};
use fanpcap_steer::ebpf::TABLE_MAP;
use fanpcap_steer::native::{self, Decision};
use fanpcap_steer_testkit::tape;

/// A group, by the seed of its table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Group(pub(crate) u64);

/// The group's table.
pub(crate) struct Table {
    bytes: Vec<u8>,
    ranks: usize,
    shared: bpf::Table,
}

impl Group {
    /// Its table, with slots and a number of ranks that are drawn.
    pub(crate) fn table(self) -> Table {
        let mut bytes = tape(!self.0, OWN);
        let drawn = usize::from(bytes[OWN - 1]);
        let ranks = match self.0 % 16 {
            3 => 0,
            7 => SLOTS,
            _ => drawn.max(1),
        };
        let count = u32::try_from(ranks).unwrap();
        bytes[RANK_COUNT..RANK_COUNT + 4].copy_from_slice(&count.to_ne_bytes());
        let shared = bpf::Table::create("proof", u32::try_from(SIZE).unwrap()).unwrap();
        for (to, byte) in shared.bytes().iter().zip(&bytes) {
            to.store(*byte, Relaxed);
        }
        Table {
            bytes,
            ranks,
            shared,
        }
    }
}

impl Table {
    /// What the group's program returns.
    pub(crate) fn returns(&self, decision: Decision) -> u32 {
        self.view().slot(decision).into()
    }

    fn view(&self) -> native::Table<'_> {
        native::Table {
            buckets: self.bytes.first_chunk::<BUCKETS>().unwrap(),
            ranks: &self.bytes[RANKS..RANKS + self.ranks],
        }
    }

    /// Loads an object, which may ask for the table.
    pub(crate) fn load(&self, object: &Object, name: &str) -> Result<Loaded, LoadError> {
        Loaded::load_with(object, name, &[(TABLE_MAP, self.shared.as_fd())])
    }
}

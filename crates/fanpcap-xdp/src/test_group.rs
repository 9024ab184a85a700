//! Groups for tests.

use crate::layout::{self, XDP_DROP};
use crate::port::CLOCKS;
use crate::{Capture, DeviceMaps, GroupProgram, MemberPool, pool_shape};
use fanpcap_buckets::layout::SIZE_WITH_CLASSES;
use fanpcap_linux::bpf::{LoadedProgram, Map, Table};
use fanpcap_ring::{Layout as _, Pool, PoolClocks};
use fanpcap_steer::ebpf::{self, TABLE_MAP};
use fanpcap_steer::{GroupOptions, tree};
use fanpcap_testkit::frames::{ethernet, v4};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Steering programs of each kind of delivery.
pub(crate) const STEERING: [&str; 7] = [
    "main = steer_flow",
    "main = udp",
    "main = double_steer_ip",
    "main = kernel >-> steer_flow",
    "main = classify 2 >-> steer_flow",
    "main = inner (when (has_port 5) steer_ip) >-> steer_flow",
    "main = when (has_port 53) (classify 3) >-> inner (when is_tcp drop) >-> double_steer_ip",
];

/// A group whose slot 0 gets all packets that its steering program does not drop.
pub(crate) struct Group {
    pub(crate) program: Arc<GroupProgram>,
    /// The BPF program for received packets.
    pub(crate) received: LoadedProgram,
    pub(crate) table: Table,
}

impl Group {
    pub(crate) fn of(source: &str, registry: DeviceMaps<'_>) -> Self {
        let shape = pool_shape().unwrap();
        let tree = tree(source, &|_| Err("none".to_owned())).unwrap();
        let table = Table::create("table", u32::try_from(SIZE_WITH_CLASSES).unwrap()).unwrap();
        let given = [(TABLE_MAP, table.as_fd())];
        let compile = |capture: &Capture| ebpf::xdp(&tree, GroupOptions::default(), capture);
        let (program, received) = GroupProgram::load(shape, registry, &given, &compile).unwrap();
        let received = received.into_program();
        Self {
            program: Arc::new(program),
            received,
            table,
        }
    }

    pub(crate) fn run(&self, frame: &[u8], times: u32) -> u32 {
        let ran = self.received.run(frame, &[], times);
        ran.unwrap().verdict
    }

    /// Puts a member into slot 0, which also gets sent packets.
    pub(crate) fn pool(&self, snaplen: u32) -> (MemberPool, Pool) {
        let maps = MemberPool::create(Some(0), self.program.shape).unwrap();
        let pool = reader(&maps);
        self.program.put(0, &maps, snaplen, 0, true).unwrap();
        (maps, pool)
    }
}

/// The maps of a registry without a device.
pub(crate) struct DeviceRegistry {
    pub(crate) settings: Table,
    stamp: Map,
}

impl DeviceRegistry {
    pub(crate) fn that_steals() -> Self {
        let settings = Table::create_rows("settings", layout::SETTINGS_LEN, 1).unwrap();
        settings.view::<AtomicU32>(0, 1).unwrap()[0].store(XDP_DROP, Ordering::Relaxed);
        Self {
            settings,
            stamp: Map::create("stamp", &layout::stamp()).unwrap(),
        }
    }

    pub(crate) fn maps(&self) -> DeviceMaps<'_> {
        DeviceMaps {
            ifindex: 0,
            settings: self.settings.as_fd(),
            stamp: self.stamp.as_fd(),
            link: None,
        }
    }
}

pub(crate) fn reader(maps: &MemberPool) -> Pool {
    let clocks = PoolClocks {
        offset: || 0,
        ..CLOCKS
    };
    Pool::new(maps.array.map().unwrap(), 7, clocks)
}

/// Returns the content of the next record: bytes, length on the wire, and the filter that the frame
/// has passed.
pub(crate) fn next(pool: &mut Pool) -> Option<(Vec<u8>, u32, u32)> {
    pool.open();
    let frame = pool.next_frame().unwrap()?;
    Some((frame.data().to_vec(), frame.wire_len(), frame.filter()))
}

pub(crate) fn frame(len: u16) -> Vec<u8> {
    let payload: Vec<u8> = (34..len).map(|at| at.to_le_bytes()[0]).collect();
    ethernet(0x0800, &v4(17, 0, &payload))
}

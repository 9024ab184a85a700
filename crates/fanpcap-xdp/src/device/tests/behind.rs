//! The engine behind a node's BPF program that selects packets.

use super::*;
use crate::selection::Selection;
use fanpcap_bpf::MapSpec;
use fanpcap_bpf::assembler::*;
use fanpcap_bpf::kernel::TAIL_CALL;
use fanpcap_testkit::veth;
use std::fs::File;

/// A node's part of a device: a BPF program that passes all packets to the BPF program in its
/// array. If the array is empty, the host gets the packets.
struct Node {
    link: Attached,
    next: ObjectArray,
    program: LoadedProgram,
    turn: std::path::PathBuf,
}

impl Node {
    fn new(index: u32, hook: Hook) -> Self {
        let next = ObjectArray::create("next", MapKind::ProgArray, 1).unwrap();
        let mut asm = Assembler::new();
        asm.call(TAIL_CALL, (R1, map(0), 0));
        asm.exit_with(2);
        let spec = MapSpec::given_rows("next", MapKind::ProgArray, 4, 1);
        let object = asm.finish(ProgramKind::Xdp, vec![spec]).unwrap();
        let given = [("next", next.as_fd())];
        let loaded = fanpcap_linux::bpf::Loaded::load_with(&object, "selects", &given).unwrap();
        let program = loaded.into_program();
        let name = format!("fanpcap-turn.{}.{hook:?}", std::process::id());
        Self {
            link: program.attach(index, hook).unwrap(),
            next,
            program,
            turn: std::env::temp_dir().join(name),
        }
    }

    /// Returns the selection with descriptors of its own, as another process would open it.
    fn selection(&self) -> Selection {
        let own = |fd: BorrowedFd<'_>| fd.try_clone_to_owned().unwrap();
        let mut options = File::options();
        let turn = options.create(true).truncate(true).write(true);
        Selection {
            link: self.link.try_clone().unwrap(),
            next: ObjectArray::open(own(self.next.as_fd()), MapKind::ProgArray, 1).unwrap(),
            turn: turn.open(&self.turn).unwrap(),
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.turn);
    }
}

#[test]
#[ignore = "needs root: eBPF, a network namespace"]
fn behind_a_selection_the_engine_has_the_packets_as_long_as_a_process_has_it() {
    on_pair(|index| {
        let node = Node::new(index, Hook::Driver);
        let take_over = || Device::take_over_behind(index, Some(node.selection()));
        let host = packet::open().unwrap();
        let address = Address {
            ifindex: index,
            protocol: 0x0800,
        };
        packet::bind(host.as_fd(), address).unwrap();
        let sender = Injector::open("va").unwrap();
        let received = || veth::counters("vb").unwrap().received;
        let host_gets = || {
            let before = received();
            sender.send(&frame(60)).unwrap();
            // The device counts the packet within the poll at whose end the host gets it.
            await_so("the packet", || received() > before);
            std::thread::sleep(Duration::from_millis(20));
            packet::take_statistics(host.as_fd()).unwrap().packets == 1
        };
        for _ in 0..3 {
            let device = take_over().unwrap();
            assert!(host_gets());
            let group = Group::of("main = steer_flow", device.maps());
            device.serve(&[(0, program(&group))]).unwrap();
            device.set_steals(true);
            assert!(!host_gets() && !host_gets());
            assert_eq!(group.program.group_counts().offered, 2);
            // The node may load another BPF program at any time. Here it loads the same BPF program
            // again.
            node.link.replace(&node.program).unwrap();
            assert!(!host_gets() && device.is_here(index));
            assert!(matches!(take_over(), Err(Unavailable::Foreign { .. })));
            let own = |fd: &BorrowedFd<'_>| fd.try_clone_to_owned().unwrap();
            let copies = device.descriptors().iter().map(own).collect();
            let other = Device::of(copies, index).unwrap();
            drop((device, group));
            assert!(matches!(take_over(), Err(Unavailable::Foreign { .. })));
            other.serve(&[]).unwrap();
            assert!(!host_gets());
            drop(other);
            await_so("the kernel empties the engine's array", host_gets);
        }
        let device = take_over().unwrap();
        node.link.detach().unwrap();
        assert_eq!(device.ifindex().unwrap(), 0);
        let error = device.serve(&[]).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(ENOLINK));
        // No BPF program is attached to the device any more, so it can be taken over without the
        // selection.
        let next = take_over().unwrap();
        assert!(next.behind.is_none() && next.is_here(index));
    });
}

#[test]
#[ignore = "needs root: eBPF, a network namespace"]
fn behind_a_selection_in_the_network_stack_there_is_no_engine() {
    on_pair(|index| {
        let node = Node::new(index, Hook::Generic);
        let refused = Device::take_over_behind(index, Some(node.selection()));
        assert!(matches!(refused, Err(Unavailable::Driver(_))));
    });
}

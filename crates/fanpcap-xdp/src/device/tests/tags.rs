//! Tags that are stored beside received and sent frames.

use super::*;
use fanpcap_linux::process::netns;
use std::os::fd::AsRawFd;

const TAG: u16 = 0x8100;
const SERVICE_TAG: u16 = 0x88a8;

/// Makes a device put a tag beside each frame that it sends, as a VLAN device with offload does.
fn tagging(device: &str, [protocol, tci]: [u16; 2]) -> Tagging {
    // bpf_skb_vlan_push() with the protocol in network order, and TCX_NEXT.
    let push = [
        Instruction::set(2, protocol.to_be().into()),
        Instruction::set(3, tci.into()),
        Instruction::new(0x85, 0, 0, 0, 18),
        Instruction::set(0, -1),
        Instruction::exit(),
    ];
    let push = LoadedProgram::load(ProgramKind::SchedCls, "push", &push).unwrap();
    let ifindex = interface::index(device).unwrap();
    Tagging(push.attach(ifindex, Hook::Egress).unwrap())
}

/// Adds the tag to frames until this value is dropped.
struct Tagging(Attached);

impl Drop for Tagging {
    /// Detaches explicitly, because a process that another test starts may have a copy of the
    /// link's descriptor.
    fn drop(&mut self) {
        self.0.detach().unwrap();
    }
}

fn tagged(plain: &[u8], tag: [u16; 2]) -> Vec<u8> {
    let tag = tag.map(u16::to_be_bytes).concat();
    [&plain[..12], &tag, &plain[12..]].concat()
}

/// Waits for the record of the frame with this length on the wire.
fn await_frame(pool: &mut Pool, len: usize) -> Vec<u8> {
    let mut found = Vec::new();
    await_so("the frame", || {
        pool.open();
        while let Some(frame) = pool.next_frame().unwrap() {
            let is_ours = frame.wire_len() as usize == len;
            found.extend(is_ours.then(|| frame.data().to_vec()));
        }
        pool.release();
        !found.is_empty()
    });
    assert_eq!(found.len(), 1);
    found.remove(0)
}

#[test]
#[ignore = "needs root: eBPF, a network namespace, tcx (Linux 6.6)"]
fn a_tag_beside_a_sent_frame_is_put_into_it() {
    on_pair(|index| {
        if !has_tcx() {
            return;
        }
        let _tagging = tagging("vb", [TAG, 0x2005]);
        let device = Device::take_over(index).unwrap();
        let group = Group::of("main = steer_flow", device.maps());
        assert!(sees_sent(&group));
        let sender = Injector::open("vb").unwrap();
        for snaplen in [1, 12, 14, 16, 17, 80, 300] {
            let (_maps, mut pool) = group.pool(snaplen);
            for len in [60_u16, 100, 1500] {
                sender.send(&frame(len)).unwrap();
                let wanted = tagged(&frame(len), [TAG, 0x2005]);
                let found = await_frame(&mut pool, wanted.len());
                let kept = wanted.len().min(snaplen as usize);
                assert_eq!(found, &wanted[..kept], "{len} {snaplen}");
            }
        }
    });
}

#[test]
#[ignore = "needs root: eBPF, a network namespace, tcx, tags by kfunc (Linux 6.16)"]
fn a_tag_beside_a_received_frame_is_in_it_for_each_group() {
    on_pair(|index| {
        if Tags::of(index).is_none() {
            println!("SKIP: XDP programs can't read tags on this kernel");
            return;
        }
        ip("link set va mtu 9000").unwrap();
        ip("link set vb mtu 9000").unwrap();
        let device = Device::take_over(index).unwrap();
        let sender = Injector::open("va").unwrap();
        let groups = ["main = steer_flow", "main = vlan >-> steer_flow"];
        let groups = groups.map(|it| Group::of(it, device.maps()));
        let all: Vec<(u8, BorrowedFd<'_>)> = (3..).zip(groups.iter().map(program)).collect();
        for group_slots in [&all[..1], &all[1..], &all] {
            device.serve(group_slots).unwrap();
            for tag in [[TAG, 5], [SERVICE_TAG, 0xe123], [TAG, 0]] {
                let _tagging = tagging("va", tag);
                for snaplen in [1, 13, 60, 96, 300, 65_535] {
                    let served = group_slots
                        .iter()
                        .map(|(group_slot, _)| &groups[usize::from(group_slot - 3)]);
                    for group in served {
                        let (_maps, mut pool) = group.pool(snaplen);
                        for len in [60_u16, 61, 1514, 3000, 9014] {
                            sender.send(&frame(len)).unwrap();
                            let wanted = tagged(&frame(len), tag);
                            let found = await_frame(&mut pool, wanted.len());
                            let kept = wanted.len().min(snaplen as usize);
                            assert_eq!(found, &wanted[..kept], "{len} {snaplen}");
                        }
                    }
                }
            }
            // Without a tag, the second group's steering program drops the frame.
            let nowhere = || groups[1].program.group_counts().nowhere;
            let (_maps, mut pool) = groups[0].pool(100);
            let before = nowhere();
            sender.send(&frame(77)).unwrap();
            if group_slots[0].0 == 3 {
                assert_eq!(await_frame(&mut pool, 77), frame(77));
            }
            if group_slots.iter().any(|it| it.0 == 4) {
                await_so("dropped", || nowhere() > before);
            }
        }
    });
}

#[test]
#[ignore = "needs root: eBPF, a network namespace"]
fn another_device_of_the_same_index_is_not_taken_for_the_links() {
    on_pair(|index| {
        let device = Device::take_over(index).unwrap();
        assert!(device.is_here(index));
        let group = Group::of("main = steer_flow", device.maps());
        device.serve(&[(0, program(&group))]).unwrap();
        assert!(device.is_here(index));
        let own = netns::current().unwrap();
        netns::enter_new().unwrap();
        let away = netns::current().unwrap();
        netns::enter(own.as_fd()).unwrap();
        let path = format!("/proc/{}/fd/{}", std::process::id(), away.as_raw_fd());
        ip(&format!("link set vb netns {path}")).unwrap();
        ip(&format!("link add vb index {index} type veth peer name vc")).unwrap();
        assert_eq!(device.ifindex().unwrap(), index);
        assert!(!device.is_here(index));
        assert!(device.tags().is_none());
        device
            .serve(&[(0, program(&group)), (1, program(&group))])
            .unwrap();
        device.serve(&[(1, program(&group))]).unwrap();
        let now = device.link.program_id().unwrap();
        assert_eq!(now, group.received.id().unwrap());
    });
}

//! Captures of unmodified applications.

use anyhow::{Result, ensure};
use fanpcap_netns::remains::{leaves_nothing, on_wire_that_ends_clean};
use fanpcap_netns::tagger::Tagger;
use fanpcap_netns::{FAR_DEVICE, ensure_each_once, on_wire};
use fanpcap_testkit::capture::Packet;
use fanpcap_testkit::member::finish;
use fanpcap_testkit::{Injector, Transport, traffic, veth};

use crate::scene::{start, tcpdump};

#[test]
#[ignore = "needs root: run by make test"]
fn tcpdump_has_each_packet_once() -> Result<()> {
    for queues in [1, 4] {
        on_wire_that_ends_clean(queues, |wire| {
            let member = start(wire)?;
            let frames = traffic::frames(1, &traffic::flows(1, 20), 0..5000)?;
            wire.send_as_tap(&frames)?;
            ensure_each_once(&finish(vec![member], frames.len())?, &frames)
        })?;
    }
    Ok(())
}

#[test]
#[ignore = "needs root: run by make test"]
fn tags_of_a_vlan_device_are_in_the_frame_and_filters_find_them() -> Result<()> {
    on_wire(1, |wire| {
        // Without this setting, the veth pair passes the tags in the skb, not in the frames.
        veth::tags_into_frames(FAR_DEVICE)?;
        leaves_nothing(|| {
            let tagged = Injector::open(FAR_DEVICE)?;
            let frames = traffic::frames(1, &traffic::flows(1, 5), 0..200)?;
            let all = start(wire)?;
            let member = tcpdump(wire)?.arg("vlan 5 and udp").start(&wire.scratch)?;
            let tagger = Tagger::on(FAR_DEVICE, 5)?;
            for frame in &frames {
                tagged.send(&frame.bytes)?;
            }
            drop(tagger);
            wire.send_as_tap(&frames)?;
            let udp = frames
                .iter()
                .filter(|frame| frame.flow.transport == Transport::Udp);
            let udp = udp.count();
            let whole = finish(vec![all], 2 * frames.len())?;
            let filtered = finish(vec![member], udp)?;
            for (frame, packet) in frames.iter().zip(&whole[0].packets) {
                ensure!(packet.original_len == frame.bytes.len() + 4, "{packet:?}");
            }
            let is_longer = |packet: &&Packet| {
                let at = usize::try_from(packet.sequence.unwrap_or(0)).unwrap_or(0);
                packet.original_len == frames[at].bytes.len() + 4
            };
            ensure!(filtered[0].packets.iter().filter(is_longer).count() == udp);
            Ok(())
        })
    })
}

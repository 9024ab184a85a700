//! Tests that merge generated captures.

mod damaged;
mod places;

use super::*;
use fanpcap_testkit::Scratch;
use pcap_file::pcap::{PcapHeader, PcapReader, PcapWriter, RawPcapPacket};
use pcap_file::pcapng::blocks::enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption};
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::pcapng::{Block, PcapNgBlock, PcapNgReader, PcapNgWriter};
use pcap_file::{DataLink, Endianness, TsResolution};
use proptest::prelude::*;
use std::borrow::Cow;
use std::fs::{self, File};
use std::time::Duration;

/// Timestamps in nanoseconds, and packets.
type Packets = Vec<(u64, Vec<u8>)>;

type Interfaces = Vec<InterfaceDescriptionBlock<'static>>;

#[derive(Clone, Copy, Debug)]
struct Kind {
    ng: bool,
    fine: bool,
    big: bool,
    link: DataLink,
}

const PCAP: Kind = Kind {
    ng: false,
    fine: false,
    big: false,
    link: DataLink::ETHERNET,
};

impl Kind {
    fn unit(self) -> u64 {
        if self.fine { 1 } else { 1000 }
    }

    fn endianness(self) -> Endianness {
        if self.big {
            Endianness::Big
        } else {
            Endianness::Little
        }
    }

    fn write(self, packets: &Packets) -> Vec<u8> {
        if self.ng {
            self.pcapng(packets)
        } else {
            self.pcap(packets)
        }
    }

    fn pcap(self, packets: &Packets) -> Vec<u8> {
        let header = PcapHeader {
            snaplen: if self.fine { 100 } else { 200 },
            datalink: self.link,
            ts_resolution: if self.fine {
                TsResolution::NanoSecond
            } else {
                TsResolution::MicroSecond
            },
            endianness: self.endianness(),
            ..PcapHeader::default()
        };
        let mut writer = PcapWriter::with_header(Vec::new(), header).unwrap();
        for (stamp, data) in packets {
            let raw = RawPcapPacket {
                ts_sec: u32::try_from(stamp / 1_000_000_000).unwrap(),
                ts_frac: u32::try_from(stamp % 1_000_000_000 / self.unit()).unwrap(),
                incl_len: u32::try_from(data.len()).unwrap(),
                orig_len: 1500,
                data: Cow::Borrowed(data),
            };
            writer.write_raw_packet(&raw).unwrap();
        }
        writer.into_writer()
    }

    fn pcapng(self, packets: &Packets) -> Vec<u8> {
        let mut writer = PcapNgWriter::with_endianness(Vec::new(), self.endianness()).unwrap();
        let resolution = InterfaceDescriptionOption::IfTsResol(9);
        let name = InterfaceDescriptionOption::IfName("eth0".into());
        let interface = InterfaceDescriptionBlock {
            linktype: self.link,
            snaplen: 300,
            options: if self.fine {
                vec![name, resolution]
            } else {
                vec![name]
            },
        };
        writer.write_block(&interface.into_block()).unwrap();
        for (stamp, data) in packets {
            let block = EnhancedPacketBlock {
                interface_id: 0,
                timestamp: Duration::from_nanos(stamp / self.unit()),
                original_len: 1500,
                data: Cow::Borrowed(data),
                options: vec![EnhancedPacketOption::Flags(1)],
            };
            writer.write_block(&block.into_block()).unwrap();
        }
        writer.into_inner()
    }
}

fn merged(scratch: &Scratch, sources: &[Vec<u8>], to: &str) -> Result<Merged> {
    let paths: Vec<PathBuf> = sources
        .iter()
        .map(|bytes| {
            let path = scratch.new_file("source");
            fs::write(&path, bytes).unwrap();
            path
        })
        .collect();
    let result = merge(&paths, &scratch.file(to));
    assert_eq!(parts(scratch), Vec::<String>::new());
    result
}

/// Partial files that were left behind.
fn parts(scratch: &Scratch) -> Vec<String> {
    let names = fs::read_dir(scratch.file("")).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.ends_with(".part")).collect()
}

/// Timestamps in nanoseconds and packets of a pcap.
fn read_pcap(path: &Path) -> (PcapHeader, Packets) {
    let mut reader = PcapReader::new(File::open(path).unwrap()).unwrap();
    let header = reader.header();
    let fine = header.ts_resolution == TsResolution::NanoSecond;
    let mut packets = Vec::new();
    while let Some(raw) = reader.next_raw_packet() {
        let raw = raw.unwrap();
        assert_eq!(raw.orig_len, 1500);
        let fraction = u64::from(raw.ts_frac) * if fine { 1 } else { 1000 };
        packets.push((
            u64::from(raw.ts_sec) * 1_000_000_000 + fraction,
            raw.data.into_owned(),
        ));
    }
    (header, packets)
}

/// The interfaces of a pcapng; then the timestamps in the file's units, the packets, and their
/// interfaces.
fn read_pcapng(path: &Path) -> (Interfaces, Vec<(u64, Vec<u8>, u32)>) {
    let mut reader = PcapNgReader::new(File::open(path).unwrap()).unwrap();
    let mut packets = Vec::new();
    while let Some(block) = reader.next_block() {
        if let Block::EnhancedPacket(block) = block.unwrap() {
            let stamp = u64::try_from(block.timestamp.as_nanos()).unwrap();
            packets.push((stamp, block.data.into_owned(), block.interface_id));
        }
    }
    (reader.interfaces().to_vec(), packets)
}

fn kind() -> impl Strategy<Value = Kind> {
    (any::<[bool; 3]>()).prop_map(|[ng, fine, big]| Kind {
        ng,
        fine,
        big,
        ..PCAP
    })
}

/// Packets that are in order within a window.
fn nearly_sorted() -> impl Strategy<Value = Packets> {
    let packet = (0_u64..5000, proptest::collection::vec(any::<u8>(), 0..40));
    let packets = proptest::collection::vec(packet, 0..200);
    (packets, 1_usize..60, any::<u64>()).prop_map(|(mut packets, window, seed)| {
        packets.sort();
        for chunk in packets.chunks_mut(window) {
            chunk.reverse();
            let middle = usize::try_from(seed % 64).unwrap().min(chunk.len());
            chunk.rotate_left(middle);
        }
        // The timestamps are whole microseconds, which every kind of file can express.
        packets
            .into_iter()
            .map(|(stamp, data)| (stamp * 1000 + 1_700_000_000_000_000_000, data))
            .collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_comes_out_is_what_went_in_in_order(
        sources in proptest::collection::vec((kind(), nearly_sorted()), 1..6),
        ng in any::<bool>(),
    ) {
        let scratch = Scratch::new().unwrap();
        let files: Vec<_> = sources.iter().map(|(kind, packets)| kind.write(packets)).collect();
        let to = if ng { "all.pcapng" } else { "all.pcap" };
        let result = merged(&scratch, &files, to).unwrap();
        // Packets with equal timestamps are in the order of the sources, then in file order.
        let mut expected: Packets = sources.iter().flat_map(|(_, packets)| packets.clone()).collect();
        expected.sort_by_key(|(stamp, _)| *stamp);
        let found: Packets = if ng {
            let (interfaces, packets) = read_pcapng(&scratch.file(to));
            let fine = interfaces.iter().any(|interface| interface.options.contains(&InterfaceDescriptionOption::IfTsResol(9)));
            let unit = if fine { 1 } else { 1000 };
            packets.into_iter().map(|(stamp, data, _)| (stamp * unit, data)).collect()
        } else {
            read_pcap(&scratch.file(to)).1
        };
        prop_assert_eq!(found, expected);
        let each: Vec<u64> = result.parts.iter().map(|part| part.packets).collect();
        let lens: Vec<u64> = sources.iter().map(|(_, packets)| packets.len() as u64).collect();
        prop_assert_eq!(each, lens);
        prop_assert_eq!((result.late, result.parts.iter().any(|part| part.cut)), (0, false));
    }

    #[test]
    fn a_file_that_is_cut_anywhere_gives_its_whole_packets(kind in kind(), at in 0.0..1.0) {
        let scratch = Scratch::new().unwrap();
        let packets: Packets = (0..9).map(|number| (number * 1000, vec![7; 30])).collect();
        let whole = kind.write(&packets);
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss, reason = "a place in a small file")]
        let len = (whole.len() as f64 * at) as usize;
        let other = PCAP.write(&vec![(500_000, vec![9])]);
        let result = merged(&scratch, &[whole[..len].to_vec(), other], "all.pcap").unwrap();
        let found = read_pcap(&scratch.file("all.pcap")).1;
        let of_cut: Packets = found.into_iter().filter(|(_, data)| data[0] == 7).collect();
        prop_assert_eq!(&of_cut[..], &packets[..of_cut.len()]);
        prop_assert_eq!(result.parts[0].packets, of_cut.len() as u64);
        prop_assert_eq!(result.packets, of_cut.len() as u64 + 1);
        // A file is cut unless it ends right after a packet.
        let rest = kind.write(&packets[..of_cut.len()].to_vec()).len();
        let after_section_header = kind.ng && len == 28;
        prop_assert_eq!(result.parts[0].cut, rest != len && !after_section_header);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn a_compressed_file_gives_its_packets_until_it_is_cut(kind in kind(), at in any::<usize>()) {
        let scratch = Scratch::new().unwrap();
        // More than one block of zstd.
        let byte = |at: u64| (at * at / 11).to_le_bytes()[0];
        let data = |number| (0..150).map(|at| byte(number * 150 + at)).collect();
        let packets: Packets = (0..2000).map(|number| (number * 1000, data(number))).collect();
        let whole = zstd::encode_all(&kind.write(&packets)[..], 1).unwrap();
        let read = |bytes: &[u8]| {
            let result = merged(&scratch, &[bytes.to_vec()], "all.pcap").unwrap();
            let found = read_pcap(&scratch.file("all.pcap")).1;
            (found, result.parts[0].cut)
        };
        prop_assert_eq!(read(&whole), (packets.clone(), false));
        let other = PCAP.write(&vec![(500_000, vec![9])]);
        let len = 4 + at % (whole.len() - 4);
        let cut = [whole[..len].to_vec(), other];
        let result = merged(&scratch, &cut, "all.pcap").unwrap();
        let of_cut = usize::try_from(result.packets - 1).unwrap();
        let found = read_pcap(&scratch.file("all.pcap")).1;
        let found: Packets = found.into_iter().filter(|(_, data)| data.len() > 1).collect();
        prop_assert_eq!(&found[..], &packets[..of_cut]);
        prop_assert!(result.parts[0].cut && of_cut < packets.len());
    }
}

#[test]
fn the_finest_precision_and_the_largest_snaplen_win() {
    let scratch = Scratch::new().unwrap();
    let coarse = PCAP.write(&vec![(2000, vec![1])]);
    let fine = Kind { fine: true, ..PCAP }.write(&vec![(1999, vec![2])]);
    merged(&scratch, &[coarse.clone(), fine], "all.pcap").unwrap();
    let (header, packets) = read_pcap(&scratch.file("all.pcap"));
    assert_eq!(
        (header.ts_resolution, header.snaplen),
        (TsResolution::NanoSecond, 200)
    );
    assert_eq!(packets, [(1999, vec![2]), (2000, vec![1])]);
    merged(&scratch, &[coarse], "all.pcap").unwrap();
    assert_eq!(
        read_pcap(&scratch.file("all.pcap")).0.ts_resolution,
        TsResolution::MicroSecond
    );
}

#[test]
fn link_types_stay_apart() {
    let scratch = Scratch::new().unwrap();
    let kinds = [
        PCAP,
        Kind {
            link: DataLink::RAW,
            ..PCAP
        },
        Kind { ng: true, ..PCAP },
        PCAP,
    ];
    let files: Vec<_> = kinds
        .iter()
        .zip(1..)
        .map(|(kind, stamp)| kind.write(&vec![(stamp * 1000, vec![])]))
        .collect();
    let error = merged(&scratch, &files, "all.pcap")
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("several link types") && error.contains("*.pcapng"),
        "{error}"
    );
    assert!(!scratch.file("all.pcap").exists());
    merged(&scratch, &files, "all.PCAPNG").unwrap();
    let (interfaces, packets) = read_pcapng(&scratch.file("all.PCAPNG"));
    // The two plain interfaces with the same link type become one. The interface with a name stays
    // separate.
    let links: Vec<DataLink> = interfaces
        .iter()
        .map(|interface| interface.linktype)
        .collect();
    assert_eq!(
        links,
        [DataLink::ETHERNET, DataLink::RAW, DataLink::ETHERNET]
    );
    assert_eq!(interfaces[2].snaplen, 300);
    let of: Vec<u32> = packets.iter().map(|packet| packet.2).collect();
    assert_eq!(of, [0, 1, 2, 0]);
}

#[test]
fn what_is_far_out_of_order_is_late_and_not_lost() {
    let scratch = Scratch::new().unwrap();
    let mut packets: Packets = (1..6000).map(|number| (number * 1000, vec![])).collect();
    packets.push((0, vec![1]));
    let result = merged(&scratch, &[PCAP.write(&packets)], "all.pcap").unwrap();
    assert_eq!((result.packets, result.late), (6000, 1));
}

#[test]
fn what_is_no_capture_or_damaged_is_an_error_and_leaves_nothing() {
    let scratch = Scratch::new().unwrap();
    let good = PCAP.write(&vec![(0, vec![])]);
    let error = merged(&scratch, &[good.clone(), b"text".to_vec()], "all.pcap").unwrap_err();
    assert!(
        format!("{error:#}").contains("source.1: neither pcap nor pcapng"),
        "{error:#}"
    );
    let mut ng = Kind { ng: true, ..PCAP }.write(&vec![(0, vec![0; 8])]);
    // Overwrite the number of the packet's interface. No interface has the new number.
    let at = ng.len() - (4 + 4 + 8 + 8 + 20);
    ng[at] = 9;
    let error = merged(&scratch, &[good, ng], "all.pcap").unwrap_err();
    assert!(format!("{error:#}").contains("source.3"), "{error:#}");
    assert!(!scratch.file("all.pcap").exists());
}

#[test]
fn a_capture_is_known_by_its_first_bytes() {
    assert_eq!(is_capture(&[]), None);
    assert_eq!(is_capture(&[0x0a, 0x0d]), None);
    assert_eq!(is_capture(b"\n\n"), Some(false));
    for kind in [
        PCAP,
        Kind {
            fine: true,
            big: true,
            ..PCAP
        },
        Kind { ng: true, ..PCAP },
    ] {
        assert_eq!(is_capture(&kind.write(&vec![])), Some(true));
    }
}

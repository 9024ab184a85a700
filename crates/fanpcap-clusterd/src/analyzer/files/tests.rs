//! A disk that is full.

use std::process::Command;

use fanpcap_cluster::Revision;
use fanpcap_cluster::record::Record;
use fanpcap_testkit::Scratch;
use pcap_file::pcapng::{Block, PcapNgReader};

use super::*;

/// A small file system in memory, which ends with this value.
struct Small(PathBuf);

impl Small {
    fn mount(at: PathBuf) -> Self {
        fs::create_dir(&at).unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=256k", "tmpfs"]);
        assert!(mount.arg(&at).status().unwrap().success());
        Self(at)
    }

    /// Fills it, but for two pages.
    fn fill(&self) -> PathBuf {
        let filler = self.0.join("filler");
        let mut file = File::create(&filler).unwrap();
        let page = [1; 4096];
        let mut pages: u64 = 0;
        while file.write_all(&page).is_ok() {
            pages += 1;
        }
        file.set_len((pages - 2) * 4096).unwrap();
        filler
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

fn put(files: &mut Files, count: u64, now: u64) {
    for number in 0..count {
        let packet = Delivered {
            revision: Revision(1),
            node: NodeId(1),
            link: 1,
            record: Record {
                stamp: now + number,
                wire_length: 1400,
                bucket: 1,
                marked: false,
                captured: &[7; 1400],
            },
            late: false,
        };
        files.put(&packet, now);
    }
    files.flush(now);
}

/// The packets of all files.
fn packets(directory: &Path) -> u64 {
    let mut count = 0;
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|end| end == "pcapng") {
            let mut reader = PcapNgReader::new(File::open(path).unwrap()).unwrap();
            while let Some(block) = reader.next_block() {
                count += u64::from(matches!(block.unwrap(), Block::EnhancedPacket(_)));
            }
        }
    }
    count
}

#[test]
#[ignore = "needs root: mounts a small file system"]
fn a_full_disk_costs_new_packets_which_are_counted_and_no_old_file() {
    let scratch = Scratch::new().unwrap();
    let small = Small::mount(scratch.file("small"));
    let rotation = Rotation {
        bytes: 1 << 30,
        time: u64::MAX,
        keep: 3,
    };
    let mut files = Files::new(&small.0, rotation).unwrap();
    let mut now = 1_000 * RETRY;
    put(&mut files, 20, now);
    assert_eq!((files.written, files.unwritten), (20, 0));
    let filler = small.fill();
    // More attempts than files are kept.
    for attempt in 1..=10 {
        now += 2 * RETRY;
        put(&mut files, 20, now);
        assert_eq!((files.written, files.unwritten), (20, 20 * attempt));
        assert!(files.trouble.is_some());
        assert_eq!(packets(&small.0), 20);
    }
    fs::remove_file(filler).unwrap();
    now += 2 * RETRY;
    put(&mut files, 20, now);
    assert_eq!((files.written, files.unwritten), (40, 200));
    assert_eq!((packets(&small.0), files.trouble), (40, None));
}

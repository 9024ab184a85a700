//! The files of an analyzer that was killed, and of an analyzer whose disk is full.

use std::io::{Read, Write};
use std::ops::Range;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::sync::atomic::Ordering;

use fanpcap_cluster::Revision;
use fanpcap_cluster::record::Record;
use fanpcap_testkit::Scratch;
use fanpcap_testkit::await_for::{LIMIT, await_for};
use pcap_file::pcapng::{Block, PcapNgReader};

use super::kept::ours;
use super::*;

/// The path of a mount, which is unmounted when this value is dropped.
struct Small(PathBuf);

impl Small {
    fn mount(at: PathBuf) -> Self {
        fs::create_dir(&at).unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=256k", "tmpfs"]);
        assert!(mount.arg(&at).status().unwrap().success());
        Self(at)
    }

    /// Mounts a file on itself, so that it can't be removed.
    fn bind(at: PathBuf) -> Self {
        let mut mount = Command::new("mount");
        mount.arg("--bind").args([&at, &at]);
        assert!(mount.status().unwrap().success());
        Self(at)
    }

    /// Fills the file system except for two pages.
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
    put_some(files, 0..count, now, now);
}

fn put_some(files: &mut Files, numbers: Range<u64>, from: u64, now: u64) {
    for number in numbers {
        let packet = Delivered {
            revision: Revision(1),
            node: NodeId(1),
            link: 1,
            record: Record {
                stamp: from + number,
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

/// The number of packets in all files.
fn packets(directory: &Path) -> u64 {
    let mut count = 0;
    for path in ours(directory).unwrap() {
        let file = File::open(&path).unwrap();
        let bytes: Box<dyn Read> = match path.extension().is_some_and(|end| end == "zst") {
            true => Box::new(zstd::Decoder::new(file).unwrap()),
            false => Box::new(file),
        };
        let mut reader = PcapNgReader::new(bytes).unwrap();
        // A killed analyzer's file may be cut off.
        while let Some(Ok(block)) = reader.next_block() {
            count += u64::from(matches!(block, Block::EnhancedPacket(_)));
        }
    }
    count
}

const ROTATION: Rotation = Rotation {
    bytes: 1 << 30,
    time: u64::MAX,
    keep: Retention {
        files: Some(3),
        bytes: None,
        free: None,
    },
    compress: false,
};

fn keeping(files: Option<usize>, bytes: Option<u64>, free: Option<u64>) -> Rotation {
    Rotation {
        keep: Retention { files, bytes, free },
        ..ROTATION
    }
}

#[test]
fn what_a_killed_analyzer_had_written_is_not_written_again() {
    let scratch = Scratch::new().unwrap();
    let directory = scratch.file("records");
    let now = 1_000 * RETRY;
    let mut killed = Files::new(&directory, ROTATION).unwrap();
    put_some(&mut killed, 0..50, now, now);
    // Writes two files. The second file is then cut off within a packet.
    killed.open = None;
    put_some(&mut killed, 50..100, now, now + 1);
    let last = killed.open.as_ref().unwrap().path.clone();
    let length = fs::metadata(&last).unwrap().len();
    File::options()
        .write(true)
        .open(&last)
        .unwrap()
        .set_len(length - 700)
        .unwrap();
    drop(killed);
    // No process writes to this pipe: reading it would wait for ever.
    let pipe = directory.join("records-9999999999.000000000.pcapng");
    assert!(
        Command::new("mkfifo")
            .arg(&pipe)
            .status()
            .unwrap()
            .success()
    );
    let mut files = Files::new(&directory, ROTATION).unwrap();
    put_some(&mut files, 40..120, now, now + 2);
    // This packet has the content of an earlier packet, but a later time stamp.
    put_some(&mut files, 110..111, now + 1000, now + 2);
    assert_eq!((files.written, files.unwritten), (81, 0));
    // All 120 packets are written once, and so is the packet with the later time stamp.
    drop(files);
    fs::remove_file(pipe).unwrap();
    assert_eq!(packets(&directory), 121);
}

#[test]
fn packets_in_compressed_files_are_not_written_again() {
    let scratch = Scratch::new().unwrap();
    let directory = scratch.file("records");
    let rotation = Rotation {
        // Seven packets fill a file.
        bytes: 10_000,
        compress: true,
        ..keeping(None, None, None)
    };
    let now = 1_000 * RETRY;
    let mut killed = Files::new(&directory, rotation).unwrap();
    for number in 0..50 {
        put_some(&mut killed, number..number + 1, now, now + number);
    }
    let await_compressed = |files: &Files, count: u64| {
        let are_done = || {
            // The file that is being written is not compressed.
            let open = usize::from(files.open.is_some());
            let plain = kept::uncompressed(&directory)?.len();
            let compressed = files.compressed();
            let compressed = compressed.map_or(0, |it| it.files.load(Ordering::Relaxed));
            Ok((plain == open && compressed == count).then_some(()))
        };
        await_for("compressed files", LIMIT, are_done).unwrap();
    };
    await_compressed(&killed, 7);
    let part = directory.join("records-0000000001.000000000.pcapng.zst.part");
    fs::write(&part, "cut off").unwrap();
    drop(killed);
    let mut files = Files::new(&directory, rotation).unwrap();
    assert!(!part.exists());
    put_some(&mut files, 0..60, now, now + 60);
    assert_eq!((files.written, files.unwritten), (60, 0));
    // Two files are compressed: the one that the killed analyzer wrote last, and one more.
    await_compressed(&files, 2);
    assert_eq!(packets(&directory), 60);
}

#[test]
fn files_that_begin_at_one_time_have_names_in_their_order() {
    let scratch = Scratch::new().unwrap();
    let directory = scratch.file("records");
    let rotation = Rotation {
        bytes: 1,
        ..keeping(None, None, None)
    };
    let mut files = Files::new(&directory, rotation).unwrap();
    let now = 1_000 * RETRY;
    // The clock is set back by a second.
    for time in [now, now, now, now - RETRY] {
        put(&mut files, 1, time);
    }
    assert_eq!((files.written, files.trouble), (4, None));
    let names: Vec<_> = (0..4)
        .map(|at| directory.join(kept::name(now + at)))
        .collect();
    assert_eq!(ours(&directory).unwrap(), names);
}

#[test]
fn only_the_analyzers_user_reads_what_was_captured() {
    let scratch = Scratch::new().unwrap();
    let directory = scratch.file("captures/records");
    let mut files = Files::new(&directory, ROTATION).unwrap();
    put(&mut files, 10, RETRY);
    let written = ours(&directory).unwrap();
    assert_eq!(written.len(), 1);
    for (path, mode) in [
        (&scratch.file("captures"), 0o700),
        (&directory, 0o700),
        (&written[0], 0o600),
    ] {
        let found = fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(found, mode, "{} has {found:o}", path.display());
    }
}

#[test]
#[ignore = "needs root: mounts a file"]
fn an_old_file_that_stays_keeps_nothing_from_being_written() {
    let scratch = Scratch::new().unwrap();
    let directory = scratch.file("records");
    let rotation = keeping(Some(2), None, None);
    let mut files = Files::new(&directory, rotation).unwrap();
    let mut oldest = None;
    for now in (1..5).map(|file| file * RETRY) {
        put(&mut files, 10, now);
        let open = files.open.take().unwrap();
        oldest.get_or_insert_with(|| Small::bind(open.path));
    }
    assert_eq!((files.written, files.unwritten), (40, 0));
    // The file that can't be removed and the two newest files are left.
    assert_eq!(packets(&directory), 30);
}

#[test]
#[ignore = "needs root: mounts a small file system"]
fn a_full_disk_costs_new_packets_which_are_counted_and_no_old_file() {
    let scratch = Scratch::new().unwrap();
    let small = Small::mount(scratch.file("small"));
    let mut files = Files::new(&small.0, ROTATION).unwrap();
    let mut now = 1_000 * RETRY;
    put(&mut files, 20, now);
    assert_eq!((files.written, files.unwritten), (20, 0));
    let filler = small.fill();
    // There are more attempts than kept files.
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

#[test]
#[ignore = "needs root: mounts a small file system"]
fn a_full_disk_costs_the_oldest_files_where_space_is_to_be_free() {
    let scratch = Scratch::new().unwrap();
    let small = Small::mount(scratch.file("small"));
    let rotation = Rotation {
        // Eight packets fill a file.
        bytes: 10_000,
        ..keeping(None, None, Some(1))
    };
    let mut files = Files::new(&small.0, rotation).unwrap();
    let now = 1_000 * RETRY;
    let filler = small.fill();
    fs::File::options()
        .write(true)
        .open(&filler)
        .and_then(|file| file.set_len(64 << 10))
        .unwrap();
    // The packets need more than the 256 KiB of the disk.
    for number in 0..400 {
        put_some(&mut files, number..number + 1, now, now + number);
    }
    assert_eq!((files.written, files.unwritten), (400, 0));
    assert_eq!((files.trouble.as_ref(), filler.exists()), (None, true));
    let left = packets(&small.0);
    let removed = files.removed();
    assert!(
        (50..150).contains(&left) && removed.files > 25,
        "{left}, {removed:?}"
    );
    // No old file is left, and other files take all the space.
    drop(files);
    small.fill();
    let mut files = Files::new(&small.0, rotation).unwrap();
    for number in 400..600 {
        put_some(&mut files, number..number + 1, now, now + number);
    }
    assert_eq!(files.written + files.unwritten, 200);
    assert!(files.written >= 1, "{files:?}");
}

#[test]
#[ignore = "needs root: mounts a small file system"]
fn so_much_of_the_disk_stays_free() {
    let scratch = Scratch::new().unwrap();
    let small = Small::mount(scratch.file("small"));
    let free = 128 << 10;
    let rotation = Rotation {
        bytes: 10_000,
        ..keeping(None, None, Some(free))
    };
    let mut files = Files::new(&small.0, rotation).unwrap();
    let now = 1_000 * RETRY;
    for number in 0..200 {
        put_some(&mut files, number..number + 1, now, now + number);
        let available = fanpcap_linux::file::space::available(&small.0).unwrap();
        // A new file takes one page.
        assert!(available >= free - 4096, "{number}: {available}");
    }
    assert_eq!((files.written, files.unwritten), (200, 0));
    // Nine files of three pages each fit, besides the file that is being written.
    assert!(
        (70..100).contains(&packets(&small.0)),
        "{}",
        packets(&small.0)
    );
}

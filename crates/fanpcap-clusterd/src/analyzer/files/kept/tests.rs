//! Which files are removed, and which files are never removed.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;

use fanpcap_testkit::Scratch;

use super::*;

const SECOND: u64 = 1_000_000_000;

/// A directory with files of 100 bytes, which begin at these times in seconds.
fn directory(seconds: &[u64]) -> (Scratch, PathBuf) {
    let scratch = Scratch::new().unwrap();
    let directory = scratch.file("records");
    fs::create_dir(&directory).unwrap();
    for second in seconds {
        fs::write(directory.join(name(second * SECOND)), [0; 100]).unwrap();
    }
    (scratch, directory)
}

/// The seconds at which the remaining files begin.
fn left(directory: &Path) -> Vec<u64> {
    let second = |path: PathBuf| {
        let name = path.file_name().unwrap().to_str().unwrap();
        name[BEGIN.len()..BEGIN.len() + SECONDS].parse().unwrap()
    };
    ours(directory).unwrap().into_iter().map(second).collect()
}

fn keeping(files: Option<usize>, bytes: Option<u64>, free: Option<u64>) -> Retention {
    Retention { files, bytes, free }
}

#[test]
fn the_oldest_go_until_each_limit_holds() {
    let all = [1, 2, 3, 4, 5];
    let is_left = |retention: Retention, expected: &[u64]| {
        let (_scratch, directory) = directory(&all);
        let mut kept = KeptFiles::new(&directory, retention);
        kept.before_file(SECOND).unwrap();
        assert_eq!(left(&directory), expected, "{retention:?}");
        let files = (all.len() - expected.len()) as u64;
        let bytes = 100 * files;
        assert_eq!(kept.removed, RemovedFiles { files, bytes });
    };
    is_left(Retention::default(), &all);
    // The setting keeps three files, one of which is the file that will be written next.
    is_left(keeping(Some(3), None, None), &[4, 5]);
    is_left(keeping(Some(1), None, None), &[]);
    is_left(keeping(None, Some(500), None), &all);
    is_left(keeping(None, Some(499), None), &[2, 3, 4, 5]);
    is_left(keeping(None, Some(0), None), &[]);
    is_left(keeping(Some(5), Some(250), None), &[4, 5]);
    is_left(keeping(Some(2), Some(400), None), &[5]);
    is_left(keeping(None, None, Some(1)), &all);
    is_left(keeping(None, None, Some(u64::MAX)), &[]);
}

#[test]
fn the_file_that_is_written_stays_whatever_its_name_and_the_limits_are() {
    let (_scratch, directory) = directory(&[1, 2, 3]);
    // The clock was set back, so the newest file has the oldest name.
    let open = directory.join(name(SECOND));
    for retention in [
        keeping(None, Some(0), None),
        keeping(None, None, Some(u64::MAX)),
    ] {
        let mut kept = KeptFiles::new(&directory, retention);
        kept.during_file((&open, 1000), SECOND).unwrap();
        assert_eq!(left(&directory), [1]);
        assert!(!kept.make_room(Some(&open), SECOND));
    }
}

#[test]
fn files_go_while_one_grows() {
    let (_scratch, directory) = directory(&[1, 2, 3]);
    let mut kept = KeptFiles::new(&directory, keeping(None, Some(350), None));
    kept.before_file(3 * SECOND).unwrap();
    let open = directory.join(name(4 * SECOND));
    for (bytes, expected) in [
        (50, &[1, 2, 3][..]),
        (51, &[2, 3]),
        (150, &[2, 3]),
        (151, &[3]),
    ] {
        kept.during_file((&open, bytes), 4 * SECOND).unwrap();
        assert_eq!(left(&directory), expected, "{bytes}");
    }
}

#[test]
fn room_is_made_only_where_space_is_to_be_free() {
    let (_scratch, directory) = directory(&[1, 2]);
    let mut kept = KeptFiles::new(&directory, keeping(Some(9), Some(9000), None));
    assert!(!kept.make_room(None, SECOND));
    let mut kept = KeptFiles::new(&directory, keeping(None, None, Some(1)));
    assert!(kept.make_room(None, SECOND));
    assert_eq!(left(&directory), [2]);
    assert!(kept.make_room(None, SECOND) && !kept.make_room(None, SECOND));
    assert_eq!(
        kept.removed,
        RemovedFiles {
            files: 2,
            bytes: 200
        }
    );
}

#[test]
fn what_the_analyzer_did_not_write_stays() {
    let (scratch, directory) = directory(&[1, 2]);
    let elsewhere = scratch.file("elsewhere");
    fs::write(&elsewhere, "mine").unwrap();
    let hostile: [&[u8]; 12] = [
        b"records-.pcapng",
        b"records-1.pcapng",
        b"records-1.000000000.pcapng",
        b"records-0000000001.00000000.pcapng",
        b"records-0000000001.0000000000.pcapng",
        b"records-0000000001.00000000\xff.pcapng",
        b"records-000000000x.000000000.pcapng",
        b"records-+000000001.000000000.pcapng",
        b"records-0000000001.000000000.pcapng\n",
        b"records-0000000001.000000000.pcapng.keep",
        b"xrecords-0000000001.000000000.pcapng",
        "records-\u{661}\u{661}\u{661}\u{661}\u{661}.000000000.pcapng".as_bytes(),
    ];
    let hostile = hostile.map(|name| directory.join(OsStr::from_bytes(name)));
    for path in &hostile {
        fs::write(path, "mine").unwrap();
    }
    let link = directory.join(name(7));
    symlink(&elsewhere, &link).unwrap();
    let folder = directory.join(name(8));
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join(name(9)), "mine").unwrap();
    let mut kept = KeptFiles::new(&directory, keeping(Some(1), Some(0), Some(u64::MAX)));
    kept.before_file(SECOND).unwrap();
    assert!(!kept.make_room(None, SECOND));
    assert_eq!(
        kept.removed,
        RemovedFiles {
            files: 2,
            bytes: 200
        }
    );
    for path in hostile.iter().chain([&elsewhere, &folder.join(name(9))]) {
        assert_eq!(fs::read(path).unwrap(), b"mine", "{}", path.display());
    }
    assert!(link.is_symlink());
}

#[test]
fn space_that_the_file_system_shows_later_is_not_freed_twice() {
    let freed = FreedSpace {
        hidden: 500,
        shown: 1000,
        until: 10,
    };
    // The file system shows, in turn: no freed space, a part of it, all of it, and more free space
    // than that.
    for (free, counted) in [(1000, 1500), (1200, 1500), (1500, 1500), (1700, 1700)] {
        assert_eq!({ freed }.free(free, 9), counted);
        assert_eq!({ freed }.free(free, 10), free);
    }
    // The file system shows all of the freed space. Then new files take some of the freed space.
    let mut shown = freed;
    for free in [1500, 1300, 900, 1200] {
        assert_eq!(shown.free(free, 9), free);
    }
    // Here new files take space before the file system shows all of the freed space.
    let mut late = freed;
    for (free, counted) in [(900, 1400), (1100, 1400), (1400, 1400), (1300, 1300)] {
        assert_eq!(late.free(free, 9), counted);
    }
    assert_eq!(FreedSpace::default().free(700, 0), 700);
}

#[test]
fn names_are_those_that_it_makes() {
    for now in [0, 1, SECOND, 1_795_000_000 * SECOND + 5, u64::MAX] {
        assert!(is_name(&name(now)), "{}", name(now));
    }
}

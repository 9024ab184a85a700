//! Tests of the destinations of merged captures: files, links, devices, FIFOs, full disks.

use super::*;
use std::os::unix::fs::{FileTypeExt, PermissionsExt, symlink};

#[test]
fn what_is_no_file_is_written_and_stays() {
    let scratch = Scratch::new().unwrap();
    let source = scratch.file("0.pcap");
    fs::write(&source, PCAP.write(&vec![(7000, vec![7])])).unwrap();
    let fifo = scratch.file("fifo");
    let made = std::process::Command::new("mkfifo").arg(&fifo).status();
    assert!(made.unwrap().success());
    let reader = std::thread::spawn({
        let fifo = fifo.clone();
        move || fs::read(fifo).unwrap()
    });
    ensure_writable(&fifo).unwrap();
    merge(&[source], &fifo).unwrap();
    assert!(fs::metadata(&fifo).unwrap().file_type().is_fifo());
    assert_eq!(reader.join().unwrap().len(), 24 + 16 + 1);

    // Writing to a device would be risky on the machine that runs the tests, so only classify it.
    let null = Path::new("/dev/null");
    assert_eq!(Place::of(null).unwrap(), Place::Stream(null.to_owned()));
    let link = scratch.file("null");
    symlink(null, &link).unwrap();
    assert_eq!(Place::of(&link).unwrap(), Place::Stream(link));
}

#[test]
fn a_link_stays_and_what_it_names_is_replaced_with_its_rights() {
    let scratch = Scratch::new().unwrap();
    fs::create_dir(scratch.file("far")).unwrap();
    let (source, link, far) = (
        scratch.file("0.pcap"),
        scratch.file("all.pcap"),
        scratch.file("far/all.pcap"),
    );
    fs::write(&source, PCAP.write(&vec![(7000, vec![7])])).unwrap();
    symlink("far/all.pcap", &link).unwrap();
    // The link points to a file that does not exist yet.
    ensure_writable(&link).unwrap();
    merge(std::slice::from_ref(&source), &link).unwrap();
    assert_eq!(read_pcap(&far).1.len(), 1);
    fs::set_permissions(&far, fs::Permissions::from_mode(0o600)).unwrap();
    merge(&[source.clone(), source], &link).unwrap();
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(read_pcap(&far).1.len(), 2);
    let mode = fs::metadata(&far).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn files_of_others_that_look_like_parts_stay() {
    let scratch = Scratch::new().unwrap();
    let (to, other) = (scratch.file("all.pcap"), scratch.file("all.pcap.part"));
    fs::write(&other, "mine").unwrap();
    ensure_writable(&to).unwrap();
    let source = scratch.file("0.pcap");
    fs::write(&source, PCAP.write(&vec![])).unwrap();
    merge(&[source], &to).unwrap();
    assert_eq!(fs::read(other).unwrap(), b"mine");
    assert_eq!(parts(&scratch), ["all.pcap.part"]);
}

#[test]
fn a_source_is_never_written_over() {
    let scratch = Scratch::new().unwrap();
    let (source, hard) = (scratch.file("0.pcap"), scratch.file("all.pcap"));
    fs::write(&source, PCAP.write(&vec![(7000, vec![7])])).unwrap();
    fs::hard_link(&source, &hard).unwrap();
    let error = merge(std::slice::from_ref(&source), &hard)
        .unwrap_err()
        .to_string();
    assert!(error.contains("the same file as"), "{error}");
    assert_eq!(read_pcap(&source).1.len(), 1);
}

#[test]
fn a_full_disk_is_told_with_the_files_name() {
    let scratch = Scratch::new().unwrap();
    let source = scratch.file("0.pcap");
    let packets = (0..3000).map(|number| (number * 1000, vec![7; 1000]));
    fs::write(&source, PCAP.write(&packets.collect())).unwrap();
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full");
    let mut writer = BufWriter::new(full.unwrap());
    let error = write(
        &[source],
        Format::Pcap,
        ("all.pcap", &mut writer),
        &mut |_, _, _, _| true,
    )
    .unwrap_err();
    let text = format!("{error:#}");
    assert!(
        text.starts_with("writing all.pcap: No space left"),
        "{text}"
    );
}

#[test]
fn a_spool_is_for_its_owner_and_takes_no_name_of_others() {
    let scratch = Scratch::new().unwrap();
    let to = scratch.file("all.pcap");
    let path = spool(&to, 3, 1);
    assert!(path != spool(&to, 3, 1) && path.parent() == to.canonicalize().unwrap_or(to).parent());
    let file = make_spool(&path).unwrap();
    assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(
        make_spool(&path).unwrap_err().kind(),
        io::ErrorKind::AlreadyExists
    );
}

//! An analyzer's outputs: files and collectors.

use std::path::Path;

use anyhow::Result;
use fanpcap_cluster::analyzer::Delivered;

use super::exports::Exports;
use super::files::{Files, Rotation};

/// The outputs, each of which gets every packet.
#[derive(Debug)]
pub(super) struct PacketOutputs {
    pub(super) files: Option<Files>,
    pub(super) exports: Option<Exports>,
}

impl PacketOutputs {
    /// Opens the outputs. If `directory` is given, packets are written to files there.
    pub(super) fn open(directory: Option<&Path>, rotation: Rotation) -> Result<Self> {
        let files = directory.map(|at| Files::new(at, rotation));
        Ok(Self {
            files: files.transpose()?,
            exports: None,
        })
    }

    /// Takes a packet at `now`, in nanoseconds since 1970.
    pub(super) fn put(&mut self, packet: &Delivered<'_>, now: u64) {
        if let Some(files) = &mut self.files {
            files.put(packet, now);
        }
        if let Some(exports) = &mut self.exports {
            exports.packet(packet);
        }
    }

    /// Writes and sends the packets that wait. Call it regularly.
    pub(super) fn flush(&mut self, now: u64) {
        if let Some(files) = &mut self.files {
            files.flush(now);
        }
        if let Some(exports) = &mut self.exports {
            exports.flush();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::net::UdpSocket;

    use fanpcap_cluster::record::Record;
    use fanpcap_cluster::{NodeId, Revision};
    use fanpcap_select::Selection;
    use fanpcap_testkit::Scratch;
    use fanpcap_testkit::await_for::LIMIT;

    use super::super::exports::Target;
    use super::super::files::Retention;
    use super::*;

    #[test]
    fn files_that_cannot_be_written_cost_no_export() {
        let scratch = Scratch::new().unwrap();
        let directory = scratch.file("records");
        let rotation = Rotation {
            bytes: u64::MAX,
            time: u64::MAX,
            keep: Retention::default(),
            compress: false,
        };
        let mut outputs = PacketOutputs::open(Some(&directory), rotation).unwrap();
        fs::remove_dir(&directory).unwrap();
        let collector = UdpSocket::bind("127.0.0.1:0").unwrap();
        collector.set_read_timeout(Some(LIMIT)).unwrap();
        let url = format!("ipfix://{}", collector.local_addr().unwrap());
        let mut exports = Exports::start(vec![Target::read(&url).unwrap()]).unwrap();
        exports.follow(Revision(1), Selection::default());
        outputs.exports = Some(exports);
        let captured = [0x5a; 66];
        let packet = Delivered {
            revision: Revision(1),
            node: NodeId(1),
            link: 1,
            record: Record {
                stamp: 1,
                wire_length: 1500,
                bucket: 7,
                marked: false,
                captured: &captured,
            },
            late: false,
        };
        outputs.put(&packet, 1);
        outputs.flush(1);
        let files = outputs.files.as_ref().unwrap();
        assert_eq!((files.written, files.unwritten), (0, 1));
        outputs.exports = None;
        let mut message = [0; 2000];
        let mut has_packet = || {
            let length = collector.recv(&mut message).unwrap();
            message[..length].windows(66).any(|it| it == captured)
        };
        while !has_packet() {}
    }
}

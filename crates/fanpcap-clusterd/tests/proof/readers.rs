//! tcpdump on the nodes, started as any user starts it, and the packets that it captures.

use std::fs::File;
use std::io::{self, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use anyhow::{Context, Result};
use fanpcap_testkit::Mirror;

use crate::wire;

/// A node's tcpdump, which is killed when this value is dropped.
pub(crate) struct Reader {
    child: Child,
    numbers: Arc<Mutex<Vec<u64>>>,
}

impl Reader {
    /// Starts tcpdump on a node's device. Its output is kept in a new file.
    pub(crate) fn start(mirror: &Mirror, node: usize, device: &str, kept: &Path) -> Result<Self> {
        let mut command = Command::new("tcpdump");
        command
            .args(["-n", "-U", "-Z", "root", "-s", "80", "-B", "65536", "-i"])
            .args([device, "-w", "-"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut child = mirror.on_node(node, || Ok(command.spawn()?))?;
        let from = child.stdout.take().context("tcpdump's output")?;
        let kept = File::create(kept)?;
        let mut from = BufReader::new(Kept { from, kept });
        // tcpdump writes the file's header when it has begun to capture.
        from.read_exact(&mut [0; 24]).context("tcpdump's header")?;
        let numbers = Arc::new(Mutex::new(Vec::new()));
        let found = Arc::clone(&numbers);
        thread::spawn(move || take(from, &found));
        Ok(Self { child, numbers })
    }

    /// The numbers of the packets that this tcpdump has captured so far.
    pub(crate) fn numbers(&self) -> Vec<u64> {
        let numbers = self.numbers.lock();
        numbers.unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn count(&self) -> usize {
        let numbers = self.numbers.lock();
        numbers.unwrap_or_else(PoisonError::into_inner).len()
    }
}

/// A stream whose bytes are also written to a file when they are read.
struct Kept {
    from: ChildStdout,
    kept: File,
}

impl Read for Kept {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let length = self.from.read(to)?;
        self.kept.write_all(&to[..length])?;
        Ok(length)
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        // This fails if the process has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads packets from a pcap stream until the stream ends.
fn take(mut from: impl Read, found: &Mutex<Vec<u64>>) {
    let mut head = [0; 16];
    let mut captured = vec![0; 1 << 16];
    while from.read_exact(&mut head).is_ok() {
        let [.., a, b, c, d, _, _, _, _] = head;
        let length = u32::from_ne_bytes([a, b, c, d]) as usize;
        if from.read_exact(&mut captured[..length]).is_err() {
            return;
        }
        if let Some(number) = wire::number(&captured[..length]) {
            let found = found.lock();
            found.unwrap_or_else(PoisonError::into_inner).push(number);
        }
    }
}
